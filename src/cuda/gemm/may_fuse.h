// What a weight format or a collective between two ops does to fusion: asked by every function that holds work back.
// Whoever adds a format or a collective decides here; what does not stand here is not fused.
#pragma once

#include "cuda/gemm/gemm_args.h"

namespace tern::cuda {

enum class WeightKind {
  kBf16,
  kF32,
  kCodes,  // never in a Gemm: products with codes (codes/) defer nothing and launch what has been deferred
};
// Between a product and what reads its sums, over several GPUs.
enum class Collective { kNone };

inline WeightKind weight_kind(const Gemm& g) { return g.w_bf16 ? WeightKind::kBf16 : WeightKind::kF32; }

// Kernels that do a neighbour's work read bfloat16 weights, and sums that nobody else adds to.
inline bool may_fuse(WeightKind weight, Collective between) {
  return weight == WeightKind::kBf16 && between == Collective::kNone;
}
inline bool may_fuse(const Gemm& g) { return may_fuse(weight_kind(g), Collective::kNone); }

}  // namespace tern::cuda
