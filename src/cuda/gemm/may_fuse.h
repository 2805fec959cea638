// What a weight format, or a collective between two ops, does to fusion: one table, which every function that holds
// work back asks. Whoever adds a format or a collective decides here for each fusion; what does not stand here is not
// fused.
#pragma once

#include "cuda/gemm/gemm_args.h"

namespace tern::cuda {

enum class WeightKind : uint8_t {
  kBf16,
  kF32,
  kCodes,  // which of their kernels may stand beside a norm says codes_norm_width() (code_format.h)
};
// Between a product and what reads its sums, over several GPUs.
enum class Collective : uint8_t { kNone };

enum class Fusion : uint8_t {
  kNormAfter,      // the product before a norm adds to the residual and leaves sums of squares
  kNormBefore,     // the product behind a norm scales its sums
  kChain,          // one row: products and norms in one persistent kernel
  kExpertSum,      // the last products of experts, their weighed sum and the first part of the norm behind it
  kResidualAdd,    // a product of cuBLASLt's adds to the residual that the norm behind it reads
  kPartsIntoNorm,  // a norm adds up the parts of k that the product before it leaves
};

struct FusionRule {
  Fusion fusion;
  WeightKind weight;      // that the product's kernel reads
  Collective collective;  // that may stand behind the product
};
// All that is fused. Kernels that do a neighbour's work read bfloat16 weights, or codes where only a norm is beside
// them, and sums that nobody else adds to. The pass between the QKV product and attention (runtime/deferred.h) reads no
// weight of a format and its sums whole.
inline constexpr FusionRule kFusionRules[] = {
    {Fusion::kNormAfter, WeightKind::kBf16, Collective::kNone},
    {Fusion::kNormBefore, WeightKind::kBf16, Collective::kNone},
    {Fusion::kChain, WeightKind::kBf16, Collective::kNone},
    {Fusion::kExpertSum, WeightKind::kBf16, Collective::kNone},
    {Fusion::kResidualAdd, WeightKind::kBf16, Collective::kNone},
    {Fusion::kPartsIntoNorm, WeightKind::kBf16, Collective::kNone},
    {Fusion::kNormAfter, WeightKind::kCodes, Collective::kNone},
    {Fusion::kNormBefore, WeightKind::kCodes, Collective::kNone},
};

inline WeightKind weight_kind(const Gemm& g) {
  if (g.codes.n > 0) return WeightKind::kCodes;
  return g.w_bf16 ? WeightKind::kBf16 : WeightKind::kF32;
}

constexpr bool may_fuse(Fusion fusion, WeightKind weight, Collective between) {
  for (const FusionRule& r : kFusionRules) {
    if (r.fusion == fusion && r.weight == weight && r.collective == between) return true;
  }
  return false;
}
inline bool may_fuse(Fusion fusion, const Gemm& g) { return may_fuse(fusion, weight_kind(g), Collective::kNone); }

}  // namespace tern::cuda
