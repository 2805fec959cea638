// The engines of this process (--data-parallel-size): each has its ranks and a copy of the model.
#pragma once

#include <memory>
#include <vector>

#include "app/config/settings.h"
#include "app/ranks/ranks.h"
#include "engine/engines.h"
#include "engine/ranks/lockstep.h"
#include "vision/tower.h"

namespace tern::app {

class LoadedEngines {
 public:
  // Opens the devices of all; nothing is read yet. Errors, of one line: what LoadedRanks::open() says; fewer GPUs than
  // engines and ranks; experts that GPUs of several engines, or engines of several processes, should share. A CPU with
  // fewer cores than engines gets one engine, and a line says so.
  static Expected<std::unique_ptr<LoadedEngines>> open(const Settings& settings);
  // The weights: on a CPU once, for all engines; on GPUs, and where engines share experts, those of all engines side by
  // side, with one bar.
  Status load(const Settings& settings);
  // The tower of pictures likewise. `first`: of the first engine, loaded already and there as long as this is.
  Status load_towers(const Settings& settings, const vision::Tower& first);

  // Every copy of weights in memory: of a rank, with the tower where it has one.
  struct Copy {
    const model::Model* model = nullptr;
    const vision::Tower* tower = nullptr;
    device::Device* device = nullptr;
    model::Shard shard;
  };
  std::vector<Copy> copies() const;

  int count() const { return static_cast<int>(engines_.size()); }
  LoadedRanks& first() { return *engines_[0]; }
  size_t weight_bytes() const;  // of all engines; what they share counts once
  Expected<std::unique_ptr<engine::EngineClient>> start(const engine::EngineConfig& config) const;

 private:
  bool shares_memory() const { return !engines_[0]->device().device->own_memory(); }
  bool shares_weights() const { return shares_memory() && lockstep_ == nullptr; }
  Status share_experts(const Settings& settings);

  std::vector<model::Shard> shards_;            // by engine and rank
  std::unique_ptr<engine::Lockstep> lockstep_;  // null: engines have all experts each
  int size_ = 1, first_ = 0;  // engines in all, those of other processes too; the number of the first one here
  std::vector<std::unique_ptr<LoadedRanks>> engines_;
  std::vector<std::unique_ptr<vision::Tower>> own_towers_;  // of engines but the first, on GPUs
  std::vector<const vision::Tower*> towers_;                // by engine; empty: the model has none
};

}  // namespace tern::app
