// What plain rows need to know of the sequence in a slot, dense: a Generation is cold after a long step.
#pragma once

#include <cstdint>

#include "engine/generation.h"

namespace tern::engine {

// A plain row is one token in flight, at `plain_from` or after it, and is sampled with `processors` and nothing else.
struct alignas(32) SlotOwner {
  Generation* generation = nullptr;
  RequestId id = 0;
  int32_t prompt = 0;  // tokens of it
  int32_t rope_delta = 0;
  int32_t plain_from = 0;
  uint32_t processors = 0;
};

SlotOwner owner_of(Generation& g);

}  // namespace tern::engine
