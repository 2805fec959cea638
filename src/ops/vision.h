// What vision towers need beside the decoder's ops: layer norm, GELUs, attention inside packed segments, interpolated
// positions, and rows that go into or out of fixed places.
#pragma once

#include "base/error.h"
#include "device/device.h"
#include "device/tensor.h"

namespace tern::ops {

// v = x (+ residual; the sum is written back, rounded to the residual's type), out = (v - mean) * rsqrt(var + eps) *
// weight + bias. Statistics in float32, variance from the differences to the mean; one rounding, to out's type.
struct LayerNormParams {
  TensorView x;         // [T, H] f32 or bf16, rows may be strided
  TensorView residual;  // empty, or [T, H] of x's type or f32: in: r, out: r + x
  TensorView weight;    // [H] f32 or bf16
  TensorView bias;      // [H] of weight's type
  TensorView out;       // [T, H] f32 or bf16; may be x itself when the types agree
  float eps = 1e-6f;
};
Status layer_norm(const LayerNormParams& params, device::Stream stream);

enum class Activation : uint8_t {
  kGeluErf,    // 0.5 x (1 + erf(x / sqrt 2))
  kGeluTanh,   // 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))
  kQuickGelu,  // x / (1 + exp(-1.702 x))
  kSilu,       // x / (1 + exp(-x))
  kRelu,       // max(x, 0); NaN stays NaN
  kNone,       // x: a change of type
};

// out = f(x), rounded once to out's type. In place when the types agree.
struct ActivateParams {
  TensorView x;    // [T, N] f32 or bf16
  TensorView out;  // [T, N] f32 or bf16
  Activation kind = Activation::kGeluErf;
};
Status activate(const ActivateParams& params, device::Stream stream);

// How many rows of a tower's MLP are worth computing at once: as many as the caches of a CPU hold the wide middle of,
// enough to fill a GPU.
int64_t rows_at_once(device::Stream stream);
// The type of what lies between a tower's products: float32 on a CPU, which has it in its caches; what the products
// round it to on a GPU, whose time goes to memory.
DType between_products(device::Stream stream, DType product);

// Attention without a mask inside segments of packed rows: rows [starts[s], starts[s + 1]) see each other and nothing
// else. A segment's result does not depend on its neighbours or its place.
struct SegmentAttentionParams {
  TensorView q, k, v;  // [T, heads, D], f32 or bf16, each with its own strides (parts of a fused row); D: multiple of 8
  TensorView starts;   // [S + 1] int32, ascending, from 0 to T
  TensorView out;      // [T, heads * D] f32 or bf16
  // Empty, or [T, D / 2] f32: q and k are rotated first (RopeStyle::kHalfSplit), in place or on the way.
  TensorView cos, sin;
  float scale = 1.0f;
  int max_segment = 0;  // rows of the longest segment (host knows it)
  // What the inputs of products (q, k, v, probabilities) are rounded to; sums are float32.
  DType product = DType::kF32;
  void* workspace = nullptr;  // segment_attention_workspace() bytes
  // Nothing but calls with the same starts, heads and types has written to the workspace since one of them.
  bool planned = false;
};
Status segment_attention(const SegmentAttentionParams& params, device::Stream stream);
// For calls of up to `max_rows` rows in up to `max_segments` segments, products of either type.
size_t segment_attention_workspace(device::Stream stream, int64_t max_rows, int64_t max_segments, int heads,
                                   int head_dim);

// out[t] = rows[t] >= 0 ? x[rows[t]] : out[t]: pictures take the place of their placeholders' embeddings.
struct TakeRowsParams {
  TensorView x;     // [P, H] f32 or bf16
  TensorView rows;  // [T] int32
  TensorView out;   // [T, H] f32 or bf16, in and out
};
Status take_rows(const TakeRowsParams& params, device::Stream stream);

// out[rows[i]] = x[i] where rows[i] >= 0. Rows must differ.
struct ScatterRowsParams {
  TensorView x;     // [N, H] f32 or bf16
  TensorView rows;  // [N] int32
  TensorView out;   // [P, H] f32 or bf16
};
Status scatter_rows(const ScatterRowsParams& params, device::Stream stream);

// out[t] += sum over j of weights[t, j] * table[rows[t, j]], in float32 with j ascending: a position table resampled.
struct InterpolateRowsParams {
  TensorView table;    // [R, H] f32 or bf16
  TensorView rows;     // [T, J] int32, contiguous; J up to 16
  TensorView weights;  // [T, J] f32, contiguous
  TensorView out;      // [T, H] f32, in and out
};
Status interpolate_rows(const InterpolateRowsParams& params, device::Stream stream);

}  // namespace tern::ops
