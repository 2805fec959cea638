// The ranks that share a model (--tensor-parallel-size): their devices, their parts of the weights.
#pragma once

#include <memory>
#include <vector>

#include "app/config/settings.h"
#include "device/communicator.h"
#include "engine/engine.h"
#include "model/model.h"

namespace tern::app {

class LoadedRanks {
 public:
  // Opens the devices; nothing is read yet. Errors, of one line: what open_device() says; GPUs, which are too few or
  // too many for this build.
  static Expected<std::unique_ptr<LoadedRanks>> open(const Settings& settings);
  // Every rank's part of the weights, side by side, with one bar.
  Status load(const Settings& settings);

  int count() const { return static_cast<int>(devices_.size()); }
  OpenedDevice& device() { return devices_[0]; }  // of the first rank
  const model::Model& model() const { return *models_[0]; }
  size_t weight_bytes() const;  // of all ranks
  Expected<std::unique_ptr<engine::Engine>> start(const engine::EngineConfig& config, const vision::Tower* tower) const;

 private:
  std::vector<OpenedDevice> devices_;
  std::unique_ptr<device::CommunicatorGroup> group_;  // null: one rank
  std::vector<std::unique_ptr<model::Model>> models_;
};

}  // namespace tern::app
