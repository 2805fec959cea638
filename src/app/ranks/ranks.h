// The ranks that share a model (--tensor-parallel-size): their devices, their parts of the weights.
#pragma once

#include <memory>
#include <vector>

#include "app/config/settings.h"
#include "app/ranks/progress.h"
#include "device/communicator.h"
#include "engine/engines.h"
#include "model/model.h"

namespace tern::app {

// Of several engines with a copy of the model each, which one; the default is alone.
struct EngineNumber {
  int number = 0, of = 1;
};

class LoadedRanks {
 public:
  // Opens the devices; nothing is read yet. Errors, of one line: what open_device() says; GPUs that are too few, differ
  // or cannot reach each other's memory.
  static Expected<std::unique_ptr<LoadedRanks>> open(const Settings& settings, const EngineNumber& engine = {});
  // Every rank's part of the weights, side by side, with one bar; then lines about them.
  Status load(const Settings& settings);
  // The two halves of load(). Rank r is part `first` + r of the bar.
  Status read(const Settings& settings, SharedProgress& progress, int first);
  void say_formats() const;
  // Before load(): experts are dealt to the ranks of so many engines, of which this is one.
  void share_experts(int engine, int engines) { engine_ = engine, engines_ = engines; }
  model::Shard shard(const Settings& settings, int rank) const {
    return {rank, count(), settings.ranks.expert_parallel, engine_, engines_};
  }
  // In place of load(): the weights of `other`, which lie in the same memory and are cut for as many ranks.
  void share(const LoadedRanks& other) { models_ = other.models_; }

  int count() const { return static_cast<int>(devices_.size()); }
  OpenedDevice& device() { return devices_[0]; }  // of the first rank
  const OpenedDevice& device() const { return devices_[0]; }
  const model::Model& model() const { return *models_[0]; }
  size_t weight_bytes() const;  // of all ranks
  engine::EnginePart part(const vision::Tower* tower) const;
  Expected<std::unique_ptr<engine::Engine>> start(const engine::EngineConfig& config, const vision::Tower* tower) const;

 private:
  int engine_ = 0, engines_ = 1;  // of those that share experts
  Status open_gpus(const Settings& settings, const EngineNumber& engine, OpenedDevice first);

  std::vector<OpenedDevice> devices_;
  std::unique_ptr<device::CommunicatorGroup> group_;  // null: one rank
  std::vector<std::shared_ptr<const model::Model>> models_;
};

}  // namespace tern::app
