// What a stream defers: a chain, or a norm with its neighbours, or the pass before attention; never two at a time.
#pragma once

#include "cuda/fusion/chain.h"
#include "cuda/fusion/norm_fusion.h"
#include "cuda/runtime/context.h"

namespace tern::cuda {

struct Deferred {
  Chain chain;
  NormFusion norm;
};

}  // namespace tern::cuda
