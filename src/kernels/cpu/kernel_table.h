// The leaf kernels of the CPU back-end: what each instruction set implements. Plain structs and function pointers only,
// because files compiled for higher instruction sets include this header and must not instantiate shared inline code.
// bf16 values travel as uint16_t bits.
#pragma once

#include <stdint.h>

#include "kernels/cpu/code_kernels.h"

namespace tern::kernels {

// acc[r, c] (+)= sum over k of x[r, k] * w[k, c], one accumulator per (r, c), k ascending: the result of a row depends
// neither on the other rows nor on how columns and k are cut into calls (accumulate = 1 continues).
struct GemmArgs {
  const void* x;   // [rows, K] f32, or bf16 for gemm_bf16
  int64_t ldx;     // elements of x
  const void* w;   // bf16: [ksteps][cols][2], a step is a pair of k; f32: [ksteps][cols]
  int64_t ldw;     // elements of w from one step to the next
  float* acc;      // [rows, cols]
  int64_t ld_acc;  // floats
  int64_t rows, cols, ksteps;
  int accumulate;  // 0: acc starts from zero
  // Null, or memory that the next call will read: the first block of rows asks for as much of it as it reads of w.
  const void* prefetch;
};

struct RmsNormRow {
  const void* x;       // [n]
  void* residual;      // null, or [n] of x's type: in r, out round(r + x), which is then normalised
  const void* weight;  // [n]
  void* out;           // [n], may be x
  int64_t n;
  float eps;
  int bf16;  // x, residual; also whether the normalised value is rounded before the weight
  int weight_bf16;
  int out_bf16;
};

// One tile of online softmax for `rows` queries. For row r the first valid[r] columns are visible.
// t = s * scale_log2 * s_scale; m' = max(m, max t); acc[r, :] *= 2^(m - m'); p = 2^(t - m'); l = l * 2^(m - m') + sum
// p. What is left as a probability is p * p_scale.
struct SoftmaxTile {
  float* s;  // [rows, ld_s]: scores in, clobbered
  int64_t ld_s;
  void* p;  // [rows, ld_p]: probabilities out (bf16 or f32), zero where not visible
  int64_t ld_p;
  const int32_t* valid;  // [rows]
  float* m;              // [rows] running maximum, in units of log2
  float* l;              // [rows] running sum
  float* acc;            // [rows, ld_acc]
  int64_t ld_acc, dim;   // dim: columns of acc
  int64_t rows, cols;
  float scale_log2;
  int p_bf16;
  const float *s_scale, *p_scale;  // null, or [cols up to the next 16]: scales of keys and values that are codes
};

// Joins the state of a later KV range into the running one: (m, l, acc) of [rows]; a range with l = 0 adds nothing.
struct SoftmaxMerge {
  float *m, *l, *acc;           // running, in and out
  const float *m2, *l2, *acc2;  // of the range
  int64_t ld_acc, ld_acc2, dim, rows;
};

struct CombineRow {
  const char* y;         // rows of [n], bf16 or f32
  int64_t y_stride;      // bytes
  const int32_t* rows;   // [k]
  const float* weights;  // [k]
  int64_t k, n;
  const void* shared;  // null, or [n]
  float shared_scale;
  void* out;  // [n]
  int bf16;
};

struct LayerNormRow {
  const void* x;       // [n]
  void* residual;      // null, or [n] of x's type: in r, out r + x, which is then normalised
  const void* weight;  // [n]
  const void* bias;    // [n] of weight's type
  void* out;           // [n], may be x
  int64_t n;
  float eps;
  int bf16;  // x, residual
  int weight_bf16;
  int out_bf16;
};

// The numbers of ops::Activation.
enum ActivationKind : int {
  kGeluErfRow = 0,
  kGeluTanhRow = 1,
  kQuickGeluRow = 2,
  kSiluRow = 3,
  kReluRow = 4,
  kNoneRow = 5
};

// out[i] += sum over j < k of weights[j] * table row rows[j], float32, j ascending.
struct InterpolateRow {
  const char* table;     // rows of [n]
  int64_t table_stride;  // bytes
  const int32_t* rows;   // [k]
  const float* weights;  // [k]
  int64_t k, n;
  float* out;  // [n]
  int table_bf16;
};

struct KernelTable {
  const char* name;
  int64_t stream_rows;  // up to so many rows a weight panel need not stay in the first cache: it is read once
  void (*gemm_bf16)(const GemmArgs*);      // x bf16, w bf16; null where the CPU has no bf16 dot product
  void (*gemm_f32_bf16)(const GemmArgs*);  // x f32, w bf16; exact products, float32 sums
  void (*gemm_f32)(const GemmArgs*);       // x f32, w f32
  void (*widen)(const uint16_t* src, float* dst, int64_t n);
  void (*narrow)(const float* src, uint16_t* dst, int64_t n);  // to nearest, ties to even
  // out = (acc + bias) * scale; bias may be null.
  void (*store_row)(const float* acc, const float* bias, float scale, void* out, int out_bf16, int64_t n);
  void (*rms_norm_row)(const RmsNormRow*);
  void (*silu_mul_row)(const void* gate, const void* up, void* out, int bf16, int out_bf16, int64_t n);
  // Rotates pairs (i, i + half) or, interleaved, (2i, 2i + 1) of one head in place.
  void (*rope_row)(void* x, const float* cos, const float* sin, int64_t half, int interleaved, int bf16);
  void (*softmax_tile)(const SoftmaxTile*);
  void (*softmax_merge)(const SoftmaxMerge*);
  void (*combine_row)(const CombineRow*);
  // dst[c * ld_dst + r] = word c of source row r, over 32-bit words; rows start `src_stride` bytes apart, at any
  // address.
  void (*transpose32)(const void* src, int64_t src_stride, uint32_t* dst, int64_t ld_dst, int64_t rows, int64_t cols);
  // dst[2 * i] = a[i], dst[2 * i + 1] = b[i].
  void (*interleave16)(const uint16_t* a, const uint16_t* b, uint16_t* dst, int64_t n);
  // dst[2 * i] = a[i]; the odd places stay untouched (another thread may be writing them).
  void (*scatter16)(const uint16_t* a, uint16_t* dst, int64_t n);
  void (*layer_norm_row)(const LayerNormRow*);
  void (*activate_row)(const void* x, void* out, int kind, int bf16, int out_bf16, int64_t n);
  void (*interpolate_row)(const InterpolateRow*);
  CodeKernels codes;
};

// Each fills what it has and leaves the rest: called from the lowest to the highest set.
void fill_scalar(KernelTable* table);
void fill_avx2(KernelTable* table);
void fill_avx512(KernelTable* table);
void fill_avx512bf16(KernelTable* table);

}  // namespace tern::kernels
