// How many blocks the cache has, and their memory (spec fastdeploy.md 6.1).
#pragma once

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
  size_t memory_total = 0;      // for the log
  size_t memory_available = 0;  // bytes before anything of the engine is allocated
  size_t memory_reserved = 0;   // bytes of workspace, logits and slot arrays
  size_t memory_pictures = 0;   // bytes of the vision tower's largest call and of encoded pictures
};

// --num-gpu-blocks-override as it is; else what memory x utilization holds, at most 40,000 and no more than all
// sequences at full length plus the prefix cache's allowance can use. Errors name the flags when one sequence does not
// fit.
Expected<BlockNumbers> count_blocks(const BlockQuestion& question);

struct CacheMemory {
  model::KvCache cache;
  std::vector<device::Buffer> buffers;
};

// Memory of `blocks` blocks and the null block, per layer group; pages are touched as blocks are used.
Expected<CacheMemory> allocate_cache(const std::vector<KvSpec>& specs, int blocks, device::Device& device);

}  // namespace tern::engine
