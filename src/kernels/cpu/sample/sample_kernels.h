// Scans over one row of logits: the leaf kernels of sampling, one set per instruction set. Plain structs and function
// pointers only (files compiled for higher instruction sets include this header). Every set gives bit-equal results:
// the exponential is our own, of separately rounded multiplications and additions, and masses are integers, so that no
// order of summation can matter.
#pragma once

#include <stdint.h>

namespace tern::kernels {

// weight(x) = round(exp(x * scale - top) * 2^30), ties to even; top = scale * (largest x). The largest logit has 2^30.
inline constexpr int kWeightBits = 30;
// Values per thresholds of one mass scan.
inline constexpr int kMassCuts = 3;
// Partial sums of exp_sum: element i of a row goes to sum i % 16, in order.
inline constexpr int kSumLanes = 16;

struct MaxScan {
  float max;      // -inf when n is 0
  int32_t index;  // the lowest one with that value
  int32_t nan;    // 1: some value is not a number (max and index then mean nothing)
};

struct MassScan {
  const float* x;
  int64_t n;
  float scale, top;
  float cut[kMassCuts];          // thresholds on x, descending
  uint64_t mass;                 // out: weights added up
  uint64_t cut_mass[kMassCuts];  // out: of x >= cut[j]
  int64_t cut_count[kMassCuts];  // out: how many x >= cut[j]
  uint32_t* weights;             // out: [n], or null
};

struct SampleKernels {
  void (*max_scan)(const float* x, int64_t n, MaxScan* out);
  void (*mass_scan)(MassScan* scan);
  // As mass_scan over weights that are known: only cut_mass and cut_count are filled.
  void (*cut_scan)(MassScan* scan, const uint32_t* weights);
  // Indices (offset by `first`) and values of low <= x < high, in order; returns how many. The outputs have
  // room for n + 16. A high of NaN has no effect.
  int64_t (*filter)(const float* x, int64_t n, float low, float high, int32_t first, float* values, int32_t* indices);
  void (*weights)(const float* x, int64_t n, float scale, float top, uint32_t* out);
  // sums[l] = sum of exp(x[i] * scale - top) over i % 16 == l, float32 terms added in float64.
  void (*exp_sum)(const float* x, int64_t n, float scale, float top, double* sums);
  int64_t (*count_above)(const float* x, int64_t n, float value);  // x > value
};

const SampleKernels& sample_kernels_scalar();
const SampleKernels& sample_kernels_avx2();
const SampleKernels& sample_kernels_avx512();
// By the active instruction set.
const SampleKernels& sample_kernels();

}  // namespace tern::kernels
