// The one decoder behind every architecture of this room: pre-norm layers of attention and a dense or expert MLP, as a
// DecoderSpec says.
#pragma once

#include <memory>

#include "model/decoder_spec.h"
#include "model/loader.h"
#include "model/microbatch.h"
#include "model/model.h"
#include "model/quantized/cache_scales.h"
#include "model/weights/decoder_weights.h"

namespace tern::model {

struct Step;
struct Gathered;

class Decoder final : public Model {
 public:
  // `table` is copied to the device. `weights` hold rank `shard.rank`'s part.
  static Expected<std::unique_ptr<Decoder>> make(DecoderSpec spec, const RopeTable& table,
                                                 std::unique_ptr<DecoderWeights> weights, ModelInfo info,
                                                 const Shard& shard, device::Device& device);

  // Scales of the quantized cache that are known before; copied to the device.
  Status set_cache_scales(const CacheScales& scales, device::Device& device);

  const ModelInfo& info() const override { return info_; }
  std::vector<KvSpec> kv_specs(int block_size) const override;
  size_t workspace_bytes(const BatchLimits& limits, device::Stream stream) const override;
  Status forward(const ForwardContext& context, TensorView logits) const override;
  WeightMemory* weight_memory() const override { return &weights_->memory; }

  const DecoderSpec& spec() const { return spec_; }
  const DecoderWeights& weights() const { return *weights_; }

 private:
  Decoder() = default;
  // Takes memory for it in any case; nothing more where there is nothing to plan.
  Status plan_attention(Step& step, const KvCache* cache) const;
  Status run(Step& step, const KvCache* cache, int logit_rows, TensorView logits) const;
  Expected<Gathered> gather(const ForwardContext& context) const;
  Status serve_experts(Step& step) const;
  KvLayerView cache_of(const KvCache& cache, int layer) const;
  Status layer(Step& step, int index, KvLayerView cache, TensorView x, TensorView out) const;
  Status embed(Step& step, TensorView out) const;
  Status embed_rows(Step& step, TensorView ids, TensorView out) const;
  Status behind_attention(Step& step, int index, TensorView x, TensorView residual, TensorView delta,
                          TensorView next_norm) const;
  // Whether the last layer is worth cutting down to the rows whose logits are asked for.
  bool trims(const Step& step, int logit_rows) const;
  Status last_layer(Step& step, KvLayerView cache, int logit_rows, TensorView x, TensorView residual,
                    TensorView logits) const;
  // One layer and the norm after it.
  Status whole_layer(Step& step, const KvCache* cache, int index, TensorView x, TensorView residual,
                     TensorView delta) const;
  // decoder_microbatch.cc. Whether layers are such that parts of a step run side by side, the bytes of workspace of a
  // part of so many rows, how a step is cut, a part's layers, and all parts from the first layer to the last norm.
  struct Cut {
    int parts = 1;
    size_t bytes = 0;  // of workspace, each
  };
  bool small_layers() const;
  size_t microbatch_bytes(const Step& step, int rows) const;
  Cut cut_of(const Step& step, int logit_rows) const;
  Status microbatch(Step& step, const KvCache* cache, TensorView x, TensorView residual, TensorView delta) const;
  Status run_microbatches(Step& step, const KvCache& cache, const Cut& cut, TensorView x, TensorView residual,
                          TensorView delta) const;
  Status head(Step& step, TensorView normed, int logit_rows, TensorView logits) const;
  Status product_of_head(Step& step, TensorView rows, TensorView logits) const;

  DecoderSpec spec_;
  std::unique_ptr<DecoderWeights> weights_;
  ModelInfo info_;
  std::unique_ptr<Microbatches> microbatches_;  // null: steps are not cut
  Shard shard_;
  device::DeviceKind device_kind_ = device::DeviceKind::kCpu;
  device::Buffer rope_memory_, scale_memory_;
  KvScales scales_;           // of the first layer
  int64_t layer_scales_ = 0;  // of a layer
  TensorView inv_freq_, axis_;
  float rope_factor_ = 1.0f;
  std::vector<std::string> hidden_names_;  // "hidden.0" ...
};

// The cache group of a decoder, before there are weights. `type`: of keys and values.
KvSpec decoder_kv_spec(const DecoderSpec& spec, const Shard& shard, DType type, device::DeviceKind device,
                       int block_size);

}  // namespace tern::model
