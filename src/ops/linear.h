// Linear layers over packed weights. A weight format packs itself row slice by row slice and brings its own kernels;
// who calls linear() does not know which format is in use.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "device/device.h"
#include "device/tensor.h"

namespace tern::ops {

class WeightFormat;

// A weight [N, K] (out, in) as its format keeps it. Owns its memory; one packed layout serves 1 and N rows.
struct PackedWeight {
  const WeightFormat* format = nullptr;
  int64_t n = 0, k = 0;
  // Of a format whose scales serve groups of columns: columns of the first group, where the rank's slice begins inside
  // one; 0: a whole group.
  int64_t first_group = 0;
  device::Buffer data;
  // The same weight without ownership, for kernels.
  bool valid() const { return format != nullptr; }
};

// y[t, n] = sum_k x[t, k] * w[n, k] (+ bias[n]); float32 accumulation in one K order whatever T is.
struct LinearParams {
  TensorView x;                          // [T, K] bf16 or f32, row stride free
  const PackedWeight* weight = nullptr;  // [N, K]
  TensorView bias;                       // empty, or [N] f32
  TensorView out;                        // [T, N] bf16 or f32
  // Empty, or the bias once more in bf16: kernels whose results are bf16 may take this one instead.
  TensorView short_bias{};
};
Status linear(const LinearParams& params, device::Stream stream);

// Rows sorted by expert: rows [offsets[e], offsets[e+1]) of x go through weights[e].
struct GroupedLinearParams {
  TensorView x;                           // [S, K]
  TensorView offsets;                     // [E + 1] int32
  std::span<const PackedWeight> weights;  // E of [N, K]
  TensorView out;                         // [S, N]
  // Empty, or where rows of x come from: x[s] is source[from[s]], and moe_permute() may have left them there.
  TensorView source{};  // [T, K]
  TensorView from{};    // [S] int32
  // The next op is moe_combine_norm(), whose rows are all of them these experts' ones, and no other op reads `out`:
  // under deferral (deferral.h) it need not be there.
  bool once = false;
};
Status grouped_linear(const GroupedLinearParams& params, device::Stream stream);

// The same for a weight of rows [gate, up] (N = 2 I), followed by silu_mul() (activation.h): gated [T, I]. `out` is
// room for what lies between; a back-end that does both at once leaves it alone.
Status gated_linear(const LinearParams& params, TensorView gated, device::Stream stream);
Status grouped_gated_linear(const GroupedLinearParams& params, TensorView gated, device::Stream stream);

// The same for an MLP without a gate: active [T, N] = f(x w^T + bias) (vision.h), `out` the room between.
enum class Activation : uint8_t;
Status active_linear(const LinearParams& params, Activation kind, TensorView active, device::Stream stream);

// In which type to leave products of so many rows whose reader rounds its result: float32, or bfloat16
// where moving half the bytes is worth more to the device than the bits.
DType product_type(device::Stream stream, int64_t rows);

// One weight per head: out[t, h, :] = weights[h] * x[t, h, :]. Used by MLA to enter and leave the latent space.
struct HeadLinearParams {
  TensorView x;                           // [T, heads, K]
  std::span<const PackedWeight> weights;  // heads of [N, K]
  TensorView out;                         // [T, heads, N]
};
Status head_linear(const HeadLinearParams& params, device::Stream stream);

// What one scale of a format with scales serves, in the whole matrix, whatever part of it a slice or rank holds.
struct ScaleBlocks {
  int64_t rows = 0;            // 0: the format has no scales
  int64_t cols = 0;            // 0: all columns
  float bound = 1.0f;          // scale = largest magnitude / bound, float32
  bool zeros = false;          // zero points as well: such weights come from files only, as codes
  bool powers_of_two = false;  // scales are rounded up to powers of two; for whoever makes scales, not the formats
};

// Rows for a format with scales, and the scales that the whole matrix gives them: value = (code - zero) * scale.
struct ScaledRows {
  TensorView source;        // as in WeightFormat::pack(); or codes, a byte each: kI8 or, of e4m3, kF8E4M3
  TensorView scales;        // [rows, groups of columns that the slice meets] f32
  int64_t row_begin = 0;    // of the packed weight
  int64_t n = 0, k = 0;     // of the packed weight
  int64_t first_group = 0;  // PackedWeight::first_group
  TensorView zeros{};       // empty, or as `scales`: whole numbers that keep code - zero within +-256
};

// How weights are kept and multiplied. Formats register themselves by name ("bf16", "f32", ...); further ones (wint8,
// wint4, block fp8) are new files. `device` is the kind the format packs for.
class WeightFormat {
 public:
  virtual ~WeightFormat() = default;
  virtual const char* name() const = 0;
  virtual size_t packed_bytes(int64_t n, int64_t k) const = 0;
  // Rows are packed in multiples of this many (the last slice of a tensor may be shorter).
  virtual int64_t row_granularity() const = 0;
  // Packs rows [row_begin, row_begin + rows) of an [n, k] weight. `rows_f`: source rows, [rows, k] bf16 or f32, row
  // stride free; `dst` is the whole packed buffer. Never needs the whole tensor at once.
  virtual Status pack(TensorView source, int64_t row_begin, int64_t n, int64_t k, void* dst) const = 0;
  // Formats with scales: pack() takes whole rows of the whole matrix and slices that begin at a multiple of
  // scale_blocks().rows; pack_scaled() takes any slice, whose scales the caller has made (quantize.h).
  virtual ScaleBlocks scale_blocks() const { return {}; }
  // Where scales serve groups of columns: a rank's columns begin at multiples of this.
  virtual int64_t column_grain() const { return 64; }
  virtual Status pack_scaled(const ScaledRows&, void* /*dst*/) const {
    return make_error(ErrorCode::kInternal, "pack: a format without scales was given some");
  }
  // Whole-tensor kernels; x and out as in LinearParams. `data` is the packed buffer.
  virtual Status run(const LinearParams& params, device::Stream stream) const = 0;
  virtual Status run_grouped(const GroupedLinearParams& params, device::Stream stream) const = 0;
  virtual Status run_heads(const HeadLinearParams& params, device::Stream stream) const = 0;
  // gated_linear() in one; false: there is no such kernel for these shapes, and nothing was launched.
  virtual Expected<bool> run_gated(const LinearParams&, TensorView /*gated*/, device::Stream) const { return false; }
  virtual Expected<bool> run_grouped_gated(const GroupedLinearParams&, TensorView /*gated*/, device::Stream) const {
    return false;
  }
  // active_linear() in one, likewise.
  virtual Expected<bool> run_active(const LinearParams&, Activation, TensorView /*active*/, device::Stream) const {
    return false;
  }
  // out[i] = row ids[i] of the weight (embeddings tied to an output layer). Optional.
  virtual Status gather_rows(const PackedWeight& weight, TensorView ids, TensorView out, device::Stream stream) const;
};

// A whole tensor [n, k] in one go: allocates on the device and packs every row. Loaders that must stay lean allocate
// packed_bytes() themselves and pack slice by slice.
Expected<PackedWeight> pack_weight(device::Device& device, const WeightFormat& format, TensorView source);

// Null when the name is unknown for that kind of device. Built-in: "bf16" and "f32".
const WeightFormat* find_weight_format(device::DeviceKind kind, const std::string& name);

}  // namespace tern::ops
