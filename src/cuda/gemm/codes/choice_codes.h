// Which kernel takes a product with a weight that is codes: pure functions, as choose_gemm() (cuda/gemm/choice.h).
// Cases: cuda/tests/choice/codes_test.cc.
#pragma once

#include <cstdint>

#include "cuda/gemm/codes.h"
#include "cuda/gemm/gemm_args.h"
#include "cuda/runtime/device_facts.h"

namespace tern::cuda {

// out[t, n] = sum_k x[t, k] w[n, k] (+ bias[n]), or silu of the first half of n times the second.
struct CodeGemm {
  CodeLayout w;
  const void* x = nullptr;
  bool x_bf16 = true;
  int64_t x_row = 0, x_head = 0;  // strides in elements
  const float* bias = nullptr;
  void* out = nullptr;
  bool out_bf16 = true;
  int64_t out_row = 0, out_head = 0;
  int64_t rows = 0;
  // As in Gemm: rows [offsets[e], offsets[e + 1]) use weight e; row s is x[from[s]] where that is given.
  const int32_t* offsets = nullptr;
  const int32_t* from = nullptr;
  int groups = 1;
  bool heads = false;
  bool gated = false;
  // Norms beside the product (gemm_args.h): of one weight and up to 16 rows, or Hopper's own kernel.
  NormAfter after;
  NormBefore before;
};

// Blocks of four or eight warps; tokens of a tile, and weight rows.
enum class CodeTile : uint8_t {
  kSimple,  // any types
  kFew8,
  kFew16,
  kFew32,
  kFew64,  // 64 rows of the weight; warps share k
  kSmall8,
  kSmall16,
  kSmall32,
  kSmall64,  // 32 rows: small weights
  kFixed8,
  kFixed64,  // one chain per value, the same for any number of tokens
  kWgmma,    // Hopper's own (codes/sm90): choose_codes_wgmma()
};

// How Hopper's kernel takes a product: rows of the weight in a tile at most (64 or 128; 0: it cannot), stripes that it
// has (of a gate half of them, and as many of up), tokens (16, 32, 64 or 128), parts of k.
struct CodesWgmma {
  int rows = 0, stripes = 0, tokens = 0, split = 1;
  bool push = false;  // parts meet as in gemm_splitk_dsmem
  int64_t tiles(const Gemm& g) const {
    const int64_t own = g.gated ? stripes / 2 : stripes, all = (g.gated ? g.n / 2 : g.n) + kStripe - 1;
    return (all / kStripe + own - 1) / own;
  }
};

// From shapes, mode and device alone. Products that bfloat16 tensor cores cannot read take kSimple.
CodeTile choose_codes(const CodeGemm& g, const DeviceFacts& f);
// The same product as what kernels of Hopper are given, and back; of one weight.
Gemm plain_gemm(const CodeGemm& g);
CodeGemm code_gemm(const Gemm& g);
CodesWgmma choose_codes_wgmma(const Gemm& g, const DeviceFacts& f);
// Whether the product's kernel can do the first part of a norm behind it, the second part of one before it.
bool codes_before_norm(const Gemm& g, const DeviceFacts& f);
bool codes_behind_norm(const Gemm& g, const DeviceFacts& f);
// Whether the gate can be done behind the product in one kernel.
bool codes_gate_fits(const CodeGemm& g, const DeviceFacts& f);
// Whether the weight is widened first (runtime/wide_room.h), for the kernels of bfloat16 weights: many rows.
bool widen_first(const CodeGemm& g, const DeviceFacts& f);

}  // namespace tern::cuda
