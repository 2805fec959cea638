// A chain: products and norms of one row that were deferred, run by one persistent kernel with a block per
// multiprocessor. Between two steps all blocks wait for each other; the weights of the steps to come are read
// meanwhile.
#pragma once

#include <cstdint>

#include "base/error.h"
#include "device/device.h"

namespace tern::cuda {

inline constexpr int kChainSteps = 8;  // of one launch
inline constexpr int64_t kChainWeight = 4096 * 4096;
inline constexpr int kChainNormed = 8192;  // width of a norm at most

// sum = x (+ residual), y = sum * rsqrt(mean(sum^2) + eps) * weight.
struct ChainNorm {
  const float* x = nullptr;
  const float* residual = nullptr;  // null: none
  float* sum = nullptr;             // where the sum goes, or null; not what another block may still read
  const void* weight = nullptr;
  bool weight_bf16 = true;
  float eps = 0;
  void* y = nullptr;  // bf16
  int width = 0;      // 0: there is no norm
};

// out[n] = sum_k x[k] w[n, k] (+ bias[n]), with a gate silu(gate) * up of rows [gate, up] of the weight.
struct ChainProduct {
  const void* weight = nullptr;
  int64_t w_row = 0;
  const void* x = nullptr;  // bf16; null: what the norm of the same step made
  const float* bias = nullptr;
  void* out = nullptr;
  bool out_bf16 = false, gated = false;
  int n = 0, k = 0;  // n 0: there is no product; k a multiple of 32, n of 16
};

// A norm, a product, or a product behind a norm that every block does for itself.
struct ChainStep {
  ChainNorm norm;
  ChainProduct product;
};

struct Chain {
  bool open = false;
  int64_t least = 0;  // values of a weight that is worth it
  int count = 0;
  ChainStep steps[kChainSteps];
};

Status launch_chain(const Chain& chain, device::Stream stream);  // chain_sm90.cu

}  // namespace tern::cuda
