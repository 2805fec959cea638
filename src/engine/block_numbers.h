// How many blocks the cache has, and their memory (fastdeploy.md 6.1).
#pragma once

#include <memory>
#include <vector>

#include "device/device.h"
#include "engine/engine.h"
#include "model/model.h"

namespace tern::engine {

struct BlockQuestion {
  const sched::SchedulerConfig& scheduler;
  int override_blocks = 0;
  double utilization = 0.9;
  double prefix_cache_allowance = 1.0;
  size_t bytes_per_block = 0;
  size_t memory_total = 0;
  size_t memory_available = 0;  // bytes before anything of the engine is allocated
  size_t memory_reserved = 0;   // bytes of workspace, logits and slot arrays
  size_t memory_pictures = 0;   // bytes of the vision tower's largest call and of encoded pictures
  // A device with memory of its own, after the profile run and graphs are captured: what it says then counts,
  // and with it what other processes take. The reserved bytes above are then part of it.
  bool measured = false;
  // Bytes it has free now. The null block has its pages by then, a page or more per layer: they stay uncounted, for
  // what rounding to whole pages of every layer adds to the blocks that are counted.
  size_t memory_left = 0;
  double profile_seconds = 0;
};

// --num-gpu-blocks-override as it is; else what memory x utilization holds, at most 40,000 and no more than all
// sequences at full length plus the prefix cache's allowance can use. Errors name the flags when one sequence does not
// fit.
Expected<BlockNumbers> count_blocks(const BlockQuestion& question);
// The most blocks that count_blocks() can say, whatever else is on the device.
int64_t most_blocks(const BlockQuestion& question);

// The memory of all blocks and the null block, a range of addresses per layer.
class CacheMemory {
 public:
  // Addresses for `blocks` blocks and the null block; memory comes with grow().
  static Expected<std::unique_ptr<CacheMemory>> reserve(const std::vector<KvSpec>& specs, int64_t blocks,
                                                        device::Device& device);
  // Memory for the first `blocks` blocks and the null block, at the addresses they have already.
  Status grow(int64_t blocks);
  // All of it, the null block's too, goes back; the addresses stay.
  Status give_back();
  const model::KvCache& cache() const { return cache_; }

 private:
  model::KvCache cache_;
  std::vector<std::unique_ptr<device::AddressRange>> ranges_;  // group by group, layer by layer
};

}  // namespace tern::engine
