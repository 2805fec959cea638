// What a stream defers: a chain, or a norm with its neighbours, or the pass before attention; never two at a time.
#pragma once

#include "cuda/chain.h"
#include "cuda/context.h"
#include "cuda/norm_fusion.h"

namespace tern::cuda {

struct Deferred {
  Chain chain;
  NormFusion norm;
};

}  // namespace tern::cuda
