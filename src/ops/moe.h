// Mixture of experts: choose, sort rows by expert, and add the results up again in rank order.
#pragma once

#include <cstdint>
#include <limits>

#include "base/error.h"
#include "device/device.h"
#include "device/tensor.h"
#include "ops/linear.h"
#include "ops/norm.h"

namespace tern::ops {

enum class MoeScoring : uint8_t { kSoftmax, kSigmoid };

// Token ids: all from `from` on, and the listed ones.
struct TokenSet {
  static constexpr int kMaxListed = 8;
  int32_t from = std::numeric_limits<int32_t>::max();
  int listed = 0;
  int32_t ids[kMaxListed] = {};

  bool contains(int32_t id) const {
    bool found = id >= from;
    for (int i = 0; i < listed; ++i) found = found || ids[i] == id;
    return found;
  }
};

// scores = softmax or sigmoid of logits (float32). Experts are chosen by scores + bias (bias only for choosing), within
// the best topk_group of n_group groups when n_group > 1 (a group's score: sum of its two best with a bias, its best
// without); ties take the lower index. Weights are the unbiased scores, divided by their sum (+ renorm_eps) when
// `renormalize`, times `scale`.
struct MoeRouteParams {
  TensorView logits;  // [T, E] f32
  TensorView bias;    // empty, or [E] f32
  MoeScoring scoring = MoeScoring::kSoftmax;
  int top_k = 0, n_group = 1, topk_group = 1;
  bool renormalize = true;
  float renorm_eps = 0.0f;
  float renorm_min = 0.0f;  // the sum is clamped from below (ERNIE); 0: not
  float scale = 1.0f;
  bool forced = false;  // ids are given (verification): only weights are computed
  // Two banks of experts (models-ernie-paddleocr.md 5.3): a token in `second` has columns [split, E), any other one
  // [0, split), and everything above happens among them, without groups. A bank of no columns is a dense MLP that
  // comes after the experts: its tokens get id E, with weight 1 in the first rank and 0 in the others.
  int split = -1;        // -1: one bank
  TensorView token_ids;  // [T] int32; empty with one bank
  TokenSet second;
  TensorView ids;      // [T, top_k] int32
  TensorView weights;  // [T, top_k] f32
};
Status moe_route(const MoeRouteParams& params, device::Stream stream);

// Sorts the T * top_k (token, expert) pairs by expert, stable in token order, and copies the token rows.
struct MoePermuteParams {
  TensorView x;    // [T, H]
  TensorView ids;  // [T, top_k] int32
  int experts = 0;
  TensorView offsets;  // [E + 1] int32, out
  TensorView row_of;   // [T, top_k] int32, out: where pair (t, j) went
  TensorView out;      // [T * top_k, H], out
  // Empty, or [T * top_k] int32: room for the token of each row. A back-end may then leave the rows where they are, for
  // products that are told (GroupedLinearParams::from) and write into `out` themselves what they miss there.
  TensorView token_of{};
};
Status moe_permute(const MoePermuteParams& params, device::Stream stream);

// moe_route(), then moe_permute() of what it chose; before both, where they are given, rms_norm() and linear(). A
// back-end may do all at once.
struct MoeDispatchParams {
  MoeRouteParams route;
  MoePermuteParams permute;  // ids: those of `route`
  LinearParams router{};     // from permute.x to route.logits; no weight: these are there
  RmsNormParams norm{};      // to permute.x; no x: that is there. With a router only
};
Status moe_dispatch(const MoeDispatchParams& params, device::Stream stream);

// out[t] = sum_j weights[t, j] * y[row_of[t, j]] + gate(t) * shared[t], float32, j ascending, one rounding at the end.
struct MoeCombineParams {
  TensorView y;            // [T * top_k, H], the type of out or bf16
  TensorView row_of;       // [T, top_k] int32
  TensorView weights;      // [T, top_k] f32
  TensorView shared;       // empty, or [T, H]
  TensorView shared_gate;  // empty (1), or [T] f32 logits: sigmoid is applied
  TensorView out;          // [T, H]
};
Status moe_combine(const MoeCombineParams& params, device::Stream stream);

// Rows [offsets[0], offsets[E]) of x become zeros: those of experts that another rank has.
struct ClearExpertsParams {
  TensorView x;        // [S, H] bf16 or f32
  TensorView offsets;  // [E + 1] int32
};
Status clear_experts(const ClearExpertsParams& params, device::Stream stream);

// moe_combine(), then rms_norm() of its result with a residual; a back-end that does both at once leaves combine.out
// alone.
struct MoeCombineNormParams {
  MoeCombineParams combine;
  RmsNormParams norm;  // x: combine.out
};
Status moe_combine_norm(const MoeCombineNormParams& params, device::Stream stream);

}  // namespace tern::ops
