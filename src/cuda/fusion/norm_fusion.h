// A norm fused with its neighbours. A product of few rows is deferred until it is known what follows. If that is a norm
// that adds it to a residual, and behind the norm a product of its rows alone, neither is launched as it is: the first
// product adds to the residual and leaves rows that lack their scale, the second one scales its sums
// (norm_epilogue.cuh). Likewise the last products of experts, their weighed sum and the norm behind it
// (moe_combine_norm). A product of more rows may leave parts of k, which the norm behind it adds up, or add to the
// residual itself. The pass between the QKV projection and attention is deferred, too: the attention of decoding rows
// does it for itself (attention_decode_qkv.cuh). In every other case what is deferred runs as it came.
#pragma once

#include "base/error.h"
#include "cuda/gemm/gemm_args.h"
#include "device/device.h"
#include "ops/moe.h"
#include "ops/norm.h"
#include "ops/rope.h"

namespace tern::cuda {

struct NormFusion {
  bool open = false;                   // for products of few rows
  bool product = false, norm = false;  // what is deferred; a norm only behind a product
  int turn = 0;
  Gemm g;  // with offsets: of experts
  const void* weight = nullptr;
  const void* experts[kNormFusedExperts] = {};
  ops::MoeCombineParams combine;  // between experts and the norm
  ops::RmsNormParams params;
  bool any =
      false;  // on Hopper, between begin_deferral() and end_deferral(): what does not need few rows may be deferred
  bool prepare = false;  // one is, and nothing else
  ops::QkvPrepareParams qkv;
};

// Launches what is deferred, as it came or fused.
Status launch_norm_fusion(device::Stream stream);

}  // namespace tern::cuda
