// The logits processors, in the order of fastdeploy.md 5.1. A new one needs a bit, a place in kAllButMask, a condition
// in wanted_processors() (params.cc), an op over slots and a line in processors.cc.
#pragma once

#include <cstdint>
#include <span>

#include "ops/logits.h"

namespace tern::sample {

enum ProcessorBit : uint32_t {
  kMask = 1u << 0,  // of a host grammar; runs before raw logits are captured
  kBias = 1u << 1,
  kMinTokens = 1u << 2,
  kPenalties = 1u << 3,
  kBadWords = 1u << 4,
  kThinking = 1u << 5,  // near the limit of reasoning
};

// Masks need memory of their own, which an engine may not have (SamplerLimits::masks).
inline constexpr uint32_t kAllButMask = kBias | kMinTokens | kPenalties | kBadWords | kThinking;

// What sampling applies by itself: rows that need no more can be sampled in the graph of their step.
inline constexpr uint32_t kAtOnce = kPenalties;

struct ProcessorInput {
  ops::LogitsParams rows;
  TensorView masks;  // [rows, V / 32] int32, or empty
};

struct Processor {
  const char* name;
  ProcessorBit bit;
  Status (*run)(const ProcessorInput& input, device::Stream stream);
};

std::span<const Processor> processors();

}  // namespace tern::sample
