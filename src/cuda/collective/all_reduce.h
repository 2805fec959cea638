#pragma once

#include <cstdint>

#include "cuda/collective/peers.h"

namespace tern::cuda {

// Whether so many values are sent to all ranks, each of which adds them up.
bool staged(const Peers& p, int64_t n);

}  // namespace tern::cuda
