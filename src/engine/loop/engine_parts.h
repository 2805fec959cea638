#pragma once

#include <array>
#include <memory>

#include "cache/encoder_cache.h"
#include "engine/block_numbers.h"
#include "engine/engine.h"
#include "engine/ranks/rank.h"
#include "engine/step/vision_stage.h"

namespace tern::engine {

// What start() has made before the threads run.
struct EngineParts {
  EngineConfig config;
  const model::Model* model = nullptr;
  device::Device* device = nullptr;
  std::unique_ptr<VisionStage> vision;           // null: no tower
  std::unique_ptr<cache::EncoderCache> encoder;  // null likewise
  BlockNumbers blocks;
  std::unique_ptr<CacheMemory> cache;
  std::unique_ptr<cache::BlockPool> pool;
  std::unique_ptr<cache::PrefixNames> names;  // null: nobody asks what the index holds
  std::unique_ptr<cache::PrefixIndex> index;
  std::unique_ptr<sched::Scheduler> scheduler;
  std::unique_ptr<sample::Sampler> sampler;
  std::array<std::unique_ptr<Step>, 2> steps;
  device::Buffer logits;
  int64_t sampled_vocab = 0;
  int pooled = 0;  // values of a row of a pooling model; 0: it generates
};

}  // namespace tern::engine
