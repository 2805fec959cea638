// A norm joined with its neighbours: on an open tape (ops/tape.h) a product of few rows is put off until it is known
// what follows. If that is a norm that adds it to a residual, and behind the norm a product of its rows alone, neither
// is launched as it is: the first product adds to the residual and leaves rows that lack their scale, the second one
// scales its sums (gemm_norm.cuh). Likewise the last products of experts, their weighed sum and the norm behind it
// (moe_combine_norm). A product of more rows may leave parts of k, which the norm behind it adds up, or add to the
// residual itself. The pass between the QKV projection and attention is put off, too: the attention of decoding rows
// does it for itself (attention_few_prepare.cuh). In every other case what was put off runs as it came.
#pragma once

#include "base/error.h"
#include "cuda/gemm_args.h"
#include "device/device.h"
#include "ops/moe.h"
#include "ops/norm.h"
#include "ops/rope.h"

namespace tern::cuda {

inline constexpr int64_t kJointRows = 64, kJointParts = 1024;  // tokens; sums of squares of each
inline constexpr int kJointExperts = 256;
inline constexpr int kPassHeads = 16;  // of one row: of more, what every block of a team repeats shows
inline constexpr int kJointTurns = 2;  // a product may read the sums before a norm and leave those behind the next one

struct AttentionArgs;

struct Joint {
  bool open = false;                   // for products of few rows
  bool product = false, norm = false;  // what is put off; a norm only behind a product
  int turn = 0;
  Gemm g;  // with offsets: of experts
  const void* weight = nullptr;
  const void* experts[kJointExperts] = {};
  ops::MoeCombineParams combine;  // between experts and the norm
  ops::RmsNormParams params;
  bool any = false;      // a tape is open on Hopper: what does not need few rows may be put off
  bool prepare = false;  // one is, and nothing else
  ops::QkvPrepareParams qkv;
};

inline constexpr size_t kJointBytes = kJointTurns * kJointRows * kJointParts * sizeof(float);

// Puts off a product whose kernel can do the first part of a norm.
void joint_hold(const Gemm& g, const void* weight, device::Stream stream);
// Whether the norm is put off, too.
bool joint_hold(const ops::RmsNormParams& p, device::Stream stream);
// The same of experts, for grouped_sum_fits(), and of what stands behind them.
void joint_hold_experts(const Gemm& g, const void* const* weights, device::Stream stream);
bool joint_hold(const ops::MoeCombineNormParams& p, device::Stream stream);
// Before a product whose kernel can do the second part of a norm. Launches what was put off, joined if it may be.
Status joint_product(Gemm& g, device::Stream stream);
// Whether the pass before attention is put off.
bool joint_hold(const ops::QkvPrepareParams& p, device::Stream stream);
// Gives the pass that was put off to decode attention of `tokens` rows of q, if it is that of these rows and can be
// done there; else launches it.
Status joint_prepare(AttentionArgs& a, int64_t tokens, int max_query_len, device::Stream stream);
Status launch_prepare(const ops::QkvPrepareParams& p, device::Stream stream);  // rope.cu
// Whether a product of cuBLASLt's adds to the residual by itself if a norm behind it reads that (linear.cc).
bool onto_pays(const Gemm& g, device::Stream stream);
// Whether one of these is better in two halves of k, which the norm adds up.
bool halves_pay(const Gemm& g, device::Stream stream);
// Likewise, of up to 128 rows: how many parts one of our own is left in; 1: it is not.
int parts_pay(const Gemm& g, device::Stream stream);
// The norm of the sum of x[0] to x[parts - 1], each [rows, p.x.dim[1]] float32 without gaps, in place of p.x; 2, 4 or 8
// parts (norm.cu).
Status rms_norm_parts(const ops::RmsNormParams& p, const float* x, int parts, device::Stream stream);
// Launches what was put off as it came.
Status play_joint(device::Stream stream);

}  // namespace tern::cuda
