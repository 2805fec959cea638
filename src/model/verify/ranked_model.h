// A model cut over several ranks of one CPU, as one model: each rank runs its part in a thread for as long as a step
// takes. For verification; an engine keeps its ranks' threads. Where experts are dealt to several engines, all of them
// run the batch, each with a cache of its own, and must agree to the bit; or the last one does beside idle ones.
#pragma once

#include <memory>
#include <vector>

#include "device/communicator.h"
#include "model/decoder.h"
#include "model/loader.h"

namespace tern::model {

class RankedModel final : public Model {
 public:
  // `options.shard` says how many ranks and engines, and whether experts are dealt whole. `idle`: all engines but the
  // last one have nothing to do.
  static Expected<std::unique_ptr<RankedModel>> load(const LoadOptions& options, device::Device& device,
                                                     bool idle = false);

  const ModelInfo& info() const override { return ranks_[0]->info(); }
  // A group of each rank, one after the other.
  std::vector<KvSpec> kv_specs(int block_size) const override;
  size_t workspace_bytes(const BatchLimits& limits, device::Stream stream) const override;
  // A probe sees rank 0; what it chooses holds for all.
  Status forward(const ForwardContext& context, TensorView logits) const override;

  const Decoder& rank(int i) const { return static_cast<const Decoder&>(*ranks_[static_cast<size_t>(i)]); }

 private:
  struct Share;
  int count() const { return static_cast<int>(ranks_.size()); }
  int of_engine() const { return count() / static_cast<int>(groups_.size()); }  // ranks
  size_t rank_bytes(const BatchLimits& limits, device::Stream stream) const;
  Status run(const Share& share, int rank, const ForwardContext& context, TensorView logits) const;
  Status run_all(const ForwardContext& context, std::span<const TensorView> logits) const;
  void let_go() const;

  std::vector<std::unique_ptr<Model>> ranks_;                       // engine by engine
  std::vector<std::unique_ptr<device::CommunicatorGroup>> groups_;  // by engine
  std::unique_ptr<device::CommunicatorGroup> experts_;              // null: one engine
  bool idle_ = false;
  mutable BatchLimits limits_;  // those workspace_bytes() was asked for: memory is cut accordingly
};

}  // namespace tern::model
