// Weight formats whose values are codes: int8 and int4 with a scale per row or group of columns, e4m3 with a scale per
// block. The codes are those of the CPU's formats, made by the same kernels.
#include <bit>
#include <cstring>
#include <vector>

#include "base/bf16.h"
#include "cuda/gemm/blaslt.h"
#include "cuda/gemm/code_format.h"
#include "cuda/gemm/codes/codes_gemm.h"
#include "cuda/runtime/cuda_ops.h"
#include "cuda/runtime/deferred.h"
#include "cuda/runtime/staging.h"
#include "cuda/runtime/wide_room.h"
#include "kernels/cpu/ref.h"
#include "kernels/cpu/simd_tables.h"
#include "ops/op_check.h"
#include "ops/quantize.h"

namespace tern::cuda {
namespace {

using ops::GroupedLinearParams;
using ops::HeadLinearParams;
using ops::is_act;
using ops::is_matrix;
using ops::is_rows;
using ops::is_vector;
using ops::LinearParams;
using ops::PackedWeight;
using ops::ScaleBlocks;
using ops::ScaledRows;

constexpr size_t kMostWide = size_t{64} << 20;  // bytes of a widened part of a weight

// What makes codes of values. All instruction sets make the same ones.
const kernels::CodeKernels& encoders() {
  static const kernels::KernelTable table = [] {
    kernels::KernelTable t{};
    kernels::fill_codes_ref(&t);
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) kernels::fill_codes_avx2(&t);
    return t;
  }();
  return table.codes;
}

// Twice -zero as bfloat16, in the bits of a float.
float negative_pair(float zero) {
  const uint32_t half = to_bf16(-zero).bits;
  return std::bit_cast<float>(half << 16 | half);
}

// Of a whole weight, or of as many of its rows as one part may have.
size_t wide_bytes(const CodeLayout& layout) {
  const auto all = static_cast<size_t>(layout.stripes() * kStripe * ((layout.k + 7) / 8 * 8)) * sizeof(uint16_t);
  return all < kMostWide ? all : kMostWide;
}

class CodeFormat final : public ops::WeightFormat {
 public:
  CodeFormat(const char* name, CodeKind kind, ScaleBlocks blocks) : name_(name), kind_(kind), blocks_(blocks) {}
  const char* name() const override { return name_; }
  size_t packed_bytes(int64_t n, int64_t k) const override {
    // A group more than k has: a rank's slice may begin inside one.
    CodeLayout layout = layout_of(n, k, 0);
    if (layout.group > kCodeBlock) layout.shift = layout.group - kCodeBlock;
    return static_cast<size_t>(layout.bytes());
  }
  // Slices hold whole blocks of scales.
  int64_t row_granularity() const override { return blocks_.rows > kStripe ? blocks_.rows : kStripe; }
  ScaleBlocks scale_blocks() const override { return blocks_; }
  Status pack(TensorView source, int64_t row_begin, int64_t n, int64_t k, void* dst) const override;
  Status pack_scaled(const ScaledRows& rows, void* dst) const override;
  Status run(const LinearParams& p, device::Stream stream) const override;
  Status run_grouped(const GroupedLinearParams& p, device::Stream stream) const override;
  Status run_heads(const HeadLinearParams& p, device::Stream stream) const override;
  Expected<bool> run_gated(const LinearParams& p, TensorView gated, device::Stream stream) const override;
  Expected<bool> run_grouped_gated(const GroupedLinearParams& p, TensorView gated,
                                   device::Stream stream) const override;
  Status gather_rows(const PackedWeight& w, TensorView ids, TensorView out, device::Stream stream) const override;

 private:
  DType code_type() const { return kind_ == CodeKind::kE4m3 ? DType::kF8E4M3 : DType::kI8; }
  CodeLayout layout_of(int64_t n, int64_t k, int64_t first_group) const {
    CodeLayout layout{kind_, static_cast<int>(blocks_.cols), 0, static_cast<int>(n), static_cast<int>(k)};
    layout.zeros = blocks_.zeros;
    if (first_group != 0) layout.shift = static_cast<int>(blocks_.cols - first_group);
    return layout;
  }
  bool usable(const PackedWeight& w) const {
    return w.format == this && w.n > 0 && w.k > 0 && w.data.bytes() >= packed_bytes(w.n, w.k);
  }
  void encode(const ScaledRows& s, const CodeLayout& layout, int64_t row, uint8_t* codes) const;
  CodeGemm shape(const TensorView& x, const PackedWeight& w, const TensorView& out) const;
  Status check(const LinearParams& p) const;
  Status check_alike(const char* op, std::span<const PackedWeight> weights, const void** to) const;
  Expected<CodeGemm> grouped_shape(const GroupedLinearParams& p, const TensorView& out, const void** weights,
                                   device::Stream stream) const;

  const char* name_;
  const CodeKind kind_;
  const ScaleBlocks blocks_;
};

Status CodeFormat::pack(TensorView source, int64_t row_begin, int64_t n, int64_t k, void* dst) const {
  TERN_OP_CHECK("pack", !blocks_.zeros, "weights with zero points are packed from codes");
  TERN_OP_CHECK("pack", is_act(source.dtype) && is_matrix(source, source.dim[0], k) && row_begin % blocks_.rows == 0,
                "the slice must be [rows, k] of float32 or bfloat16, from a block of scales on");
  std::vector<float> scales;
  TERN_OP_CHECK("pack", ops::scales_of(blocks_, source, scales), "NaN and infinity cannot be quantized");
  const int64_t groups = ops::scale_groups(blocks_, k, 0);
  return pack_scaled({source, tensor2(scales.data(), DType::kF32, source.dim[0], groups), row_begin, n, k, 0}, dst);
}

// The codes of one row, one byte each.
void CodeFormat::encode(const ScaledRows& s, const CodeLayout& layout, int64_t row, uint8_t* codes) const {
  if (s.source.dtype == code_type()) {
    std::memcpy(codes, s.source.row_bytes(row), static_cast<size_t>(s.k));
    return;
  }
  const auto* scales = reinterpret_cast<const float*>(s.scales.row_bytes(row));
  const int64_t group = layout.group == 0 ? s.k : layout.group;
  const auto bytes = static_cast<int64_t>(dtype_bytes(s.source.dtype));
  const int is_bf16 = s.source.dtype == DType::kBF16;
  for (int64_t k = 0, end; k < s.k; k = end) {
    const int64_t g = (k + layout.shift) / group;
    end = (g + 1) * group - layout.shift < s.k ? (g + 1) * group - layout.shift : s.k;
    const char* x = s.source.row_bytes(row) + k * bytes;
    if (kind_ == CodeKind::kE4m3) {
      encoders().encode_e4m3(x, is_bf16, scales[g], codes + k, end - k);
    } else {
      encoders().encode_int(x, is_bf16, scales[g], blocks_.bound, codes + k, end - k);
    }
  }
}

Status CodeFormat::pack_scaled(const ScaledRows& s, void* dst) const {
  constexpr const char* kOp = "pack";
  const int64_t rows = s.source.dim[0];
  TERN_OP_CHECK(kOp,
                (is_act(s.source.dtype) || s.source.dtype == code_type()) && is_matrix(s.source, rows, s.k) &&
                    s.k > 0 && s.k < (1 << 30),
                "the slice must be [rows, k] of float32 or bfloat16, or of this format's codes");
  TERN_OP_CHECK(kOp, (s.zeros.data != nullptr) == blocks_.zeros && (!blocks_.zeros || s.source.dtype == code_type()),
                "zero points go with codes of formats that have them");
  TERN_OP_CHECK(kOp,
                s.row_begin >= 0 && s.row_begin % kStripe == 0 && s.row_begin + rows <= s.n &&
                    (rows % kStripe == 0 || s.row_begin + rows == s.n),
                "slices start at a multiple of 16 rows and only the last may be shorter");
  const CodeLayout layout = layout_of(s.n, s.k, s.first_group);
  TERN_OP_CHECK(kOp, s.first_group % ops::kScaleGrain == 0,
                "a rank's columns must be multiples of 64 where scales serve groups of columns");
  TERN_OP_CHECK(kOp, s.scales.dtype == DType::kF32 && is_matrix(s.scales, rows, layout.groups()),
                "there must be a scale for every row and group");
  TERN_OP_CHECK(kOp, !blocks_.zeros || (s.zeros.dtype == DType::kF32 && is_matrix(s.zeros, rows, layout.groups())),
                "there must be a zero point for every row and group");
  const int64_t pitch = int64_t{layout.blocks()} * kCodeBlock;
  std::vector<uint8_t> codes(static_cast<size_t>(kStripe * pitch));
  const auto fill = [&](int64_t i, char* to) {
    const int64_t here = rows - i * kStripe < kStripe ? rows - i * kStripe : kStripe;
    if (here < kStripe) std::memset(codes.data(), 0, codes.size());
    auto* scales = reinterpret_cast<float*>(to + layout.code_bytes());
    std::memset(scales, 0, static_cast<size_t>(layout.stripe_bytes() - layout.code_bytes()));
    for (int64_t r = 0; r < here; ++r) {
      encode(s, layout, i * kStripe + r, codes.data() + r * pitch);
      const int words = layout.group_bytes() / 4;
      const auto* from = reinterpret_cast<const float*>(s.scales.row_bytes(i * kStripe + r));
      for (int g = 0; g < layout.groups(); ++g) scales[g * words + r] = from[g];
      if (!layout.zeros) continue;
      const auto* zeros = reinterpret_cast<const float*>(s.zeros.row_bytes(i * kStripe + r));
      for (int g = 0; g < layout.groups(); ++g) scales[g * words + kStripe + r] = negative_pair(zeros[g]);
    }
    lay_stripe(layout, codes.data(), pitch, to);
  };
  TERN_RETURN_IF_ERROR(
      thread_staging().pieces((rows + kStripe - 1) / kStripe, layout.stripe_bytes(), fill,
                              static_cast<char*>(dst) + s.row_begin / kStripe * layout.stripe_bytes()));
  want_wide_room(thread_staging().ordinal(), wide_bytes(layout));
  return {};
}

CodeGemm CodeFormat::shape(const TensorView& x, const PackedWeight& w, const TensorView& out) const {
  CodeGemm g;
  g.w = layout_of(w.n, w.k, w.first_group);
  g.x = x.data, g.x_bf16 = x.dtype == DType::kBF16, g.x_row = x.stride[0];
  g.out = out.data, g.out_bf16 = out.dtype == DType::kBF16, g.out_row = out.stride[0];
  g.rows = x.dim[0];
  return g;
}

Status CodeFormat::check(const LinearParams& p) const {
  constexpr const char* kOp = "linear";
  const PackedWeight& w = *p.weight;
  TERN_OP_CHECK(kOp, usable(w), "the weight was not packed by this format");
  TERN_OP_CHECK(kOp, is_act(p.x.dtype) && is_matrix(p.x, p.x.dim[0], w.k), "x must be [T, K]");
  TERN_OP_CHECK(kOp, is_act(p.out.dtype) && is_matrix(p.out, p.x.dim[0], w.n), "out must be [T, N]");
  TERN_OP_CHECK(kOp, p.bias.data == nullptr || is_vector(p.bias, DType::kF32, w.n), "bias must be [N] float32");
  return {};
}

// Many rows: parts of the weight become bfloat16, one after the other, for cuBLASLt. A scale per row goes onto float32
// sums; other scales, and those of results that are rounded to bfloat16 anyway, are rounded into the weight. False: the
// library has no algorithm. Kernels that read weights before the kernel ahead has ended must not be given these.
Expected<bool> widened_product(const CodeGemm& g, const void* weight, const void* short_bias, device::Stream stream) {
  const StreamState& s = state(stream);
  const WideRoom room = wide_room(s);
  const int64_t row = (int64_t{g.w.k} + 7) / 8 * 8;
  const bool scaled = g.w.group != 0 || g.out_bf16;
  if (g.bias != nullptr && g.out_bf16 && short_bias == nullptr) return false;
  const int64_t step = static_cast<int64_t>(room.bytes) / (row * 2 * kStripe);
  const int64_t size = g.out_bf16 ? 2 : 4;
  for (int64_t at = 0; at < g.w.stripes(); at += step) {
    const int64_t end = at + step < g.w.stripes() ? at + step : g.w.stripes(), n0 = at * kStripe;
    TERN_RETURN_IF_ERROR(widen_codes(g.w, weight, at, end, scaled, row, room.data, stream));
    Gemm part;
    part.x = g.x, part.x_row = g.x_row, part.w_row = row, part.rows = g.rows, part.k = g.w.k;
    part.n = end * kStripe < g.w.n ? end * kStripe - n0 : g.w.n - n0;
    part.out = static_cast<char*>(g.out) + n0 * size, part.out_bf16 = g.out_bf16, part.out_row = g.out_row;
    if (scaled && g.bias != nullptr) {
      part.bias = g.bias + n0;
      if (short_bias != nullptr) part.short_bias = static_cast<const uint16_t*>(short_bias) + n0;
    }
    if (!s.blas->run(part, room.data, stream)) return false;
    TERN_RETURN_IF_ERROR(launched(stream, "cublaslt_widened"));
    if (scaled) continue;
    TERN_RETURN_IF_ERROR(scale_columns(g.w, weight, at, g.bias == nullptr ? nullptr : g.bias + n0,
                                       static_cast<float*>(part.out), g.out_row, g.rows, part.n, stream));
  }
  return true;
}

// A product that may wait for a norm behind it. With a norm before it, that is done here, too.
Status product_beside_norms(const CodeGemm& g, const void* weight, device::Stream stream) {
  const DeviceFacts f = device_facts(stream);
  Gemm h = plain_gemm(g);
  TERN_RETURN_IF_ERROR(codes_behind_norm(h, f) ? fuse_norm_before(h, stream) : launch_deferred(stream));
  if (!codes_before_norm(h, f)) return codes_product(h, weight, stream);
  defer_product(h, weight, stream);
  return {};
}

Status CodeFormat::run(const LinearParams& p, device::Stream stream) const {
  TERN_RETURN_IF_ERROR(check(p));
  CodeGemm g = shape(p.x, *p.weight, p.out);
  g.bias = p.bias.as<const float>();
  if (g.rows == 0) return {};
  const void* weight = p.weight->data.data();
  if (defers_few_rows(stream)) return product_beside_norms(g, weight, stream);
  if (widen_first(g, device_facts(stream))) {
    const void* short_bias = p.short_bias.dtype == DType::kBF16 ? p.short_bias.data : nullptr;
    TERN_ASSIGN_OR_RETURN(const bool done, widened_product(g, weight, short_bias, stream));
    if (done) return {};
  }
  return gemm_codes(g, &weight, stream);
}

Expected<bool> CodeFormat::run_gated(const LinearParams& p, TensorView gated, device::Stream stream) const {
  TERN_RETURN_IF_ERROR(check(p));
  if (p.out.dim[1] % 2 != 0 || !is_act(gated.dtype) || !is_matrix(gated, p.x.dim[0], p.out.dim[1] / 2)) return false;
  CodeGemm g = shape(p.x, *p.weight, gated);
  g.bias = p.bias.as<const float>(), g.gated = true;
  if (!codes_gate_fits(g, device_facts(stream))) return false;
  const void* weight = p.weight->data.data();
  if (g.rows == 0) return true;
  const bool few = defers_few_rows(stream);
  TERN_RETURN_IF_ERROR(few ? product_beside_norms(g, weight, stream) : gemm_codes(g, &weight, stream));
  return true;
}

Status CodeFormat::check_alike(const char* op, std::span<const PackedWeight> weights, const void** to) const {
  TERN_OP_CHECK(op, weights.size() <= kMaxExperts, "there are more than 2048 weights");
  const PackedWeight& first = weights[0];
  for (size_t e = 0; e < weights.size(); ++e) {
    const PackedWeight& w = weights[e];
    TERN_OP_CHECK(op, usable(w) && w.n == first.n && w.k == first.k && w.first_group == first.first_group,
                  "the weights must be alike and packed by this format");
    to[e] = w.data.data();
  }
  return {};
}

Expected<CodeGemm> CodeFormat::grouped_shape(const GroupedLinearParams& p, const TensorView& out, const void** weights,
                                             device::Stream stream) const {
  constexpr const char* kOp = "grouped_linear";
  TERN_RETURN_IF_ERROR(check_alike(kOp, p.weights, weights));
  const auto experts = static_cast<int64_t>(p.weights.size());
  const int64_t n = p.weights[0].n, k = p.weights[0].k;
  TERN_OP_CHECK(kOp, is_act(p.x.dtype) && is_matrix(p.x, p.x.dim[0], k), "x must be [S, K]");
  TERN_OP_CHECK(kOp, is_act(p.out.dtype) && is_matrix(p.out, p.x.dim[0], n), "out must be [S, N]");
  TERN_OP_CHECK(kOp, is_vector(p.offsets, DType::kI32, experts + 1), "offsets must be [E + 1] int32");
  TERN_OP_CHECK(kOp,
                p.from.data == nullptr || (is_vector(p.from, DType::kI32, p.x.dim[0]) && p.source.dtype == p.x.dtype &&
                                           is_matrix(p.source, p.source.dim[0], k)),
                "from must be [S] int32 beside source [T, K]");
  CodeGemm g = shape(p.x, p.weights[0], out);
  g.offsets = p.offsets.as<const int32_t>(), g.groups = static_cast<int>(experts);
  if (rows_stay(p.source, p.from, experts, stream)) {
    g.x = p.source.data, g.x_row = p.source.stride[0], g.from = p.from.as<const int32_t>();
  }
  return g;
}

Status CodeFormat::run_grouped(const GroupedLinearParams& p, device::Stream stream) const {
  const void* weights[kMaxExperts];
  TERN_ASSIGN_OR_RETURN(const CodeGemm g, grouped_shape(p, p.out, weights, stream));
  return g.rows == 0 ? Status() : gemm_codes(g, weights, stream);
}

Expected<bool> CodeFormat::run_grouped_gated(const GroupedLinearParams& p, TensorView gated,
                                             device::Stream stream) const {
  const void* weights[kMaxExperts];
  if (p.out.dim[1] % 2 != 0 || !is_act(gated.dtype) || !is_matrix(gated, p.x.dim[0], p.out.dim[1] / 2)) return false;
  TERN_ASSIGN_OR_RETURN(CodeGemm g, grouped_shape(p, gated, weights, stream));
  g.gated = true;
  if (!codes_gate_fits(g, device_facts(stream))) return false;
  if (g.rows > 0) TERN_RETURN_IF_ERROR(gemm_codes(g, weights, stream));
  return true;
}

Status CodeFormat::run_heads(const HeadLinearParams& p, device::Stream stream) const {
  constexpr const char* kOp = "head_linear";
  const void* weights[kMaxExperts];
  TERN_RETURN_IF_ERROR(check_alike(kOp, p.weights, weights));
  const auto heads = static_cast<int64_t>(p.weights.size());
  const int64_t n = p.weights[0].n, k = p.weights[0].k;
  TERN_OP_CHECK(kOp, is_act(p.x.dtype) && p.x.rank == 3 && is_rows(p.x) && p.x.dim[1] == heads && p.x.dim[2] == k,
                "x must be [T, heads, K]");
  TERN_OP_CHECK(kOp,
                is_act(p.out.dtype) && p.out.rank == 3 && is_rows(p.out) && p.out.dim[0] == p.x.dim[0] &&
                    p.out.dim[1] == heads && p.out.dim[2] == n,
                "out must be [T, heads, N]");
  CodeGemm g = shape(p.x, p.weights[0], p.out);
  g.x_head = p.x.stride[1], g.out_head = p.out.stride[1];
  g.heads = true, g.groups = static_cast<int>(heads);
  return g.rows == 0 ? Status() : gemm_codes_simple(g, weights, stream);
}

Status CodeFormat::gather_rows(const PackedWeight& w, TensorView ids, TensorView out, device::Stream stream) const {
  constexpr const char* kOp = "embedding";
  TERN_OP_CHECK(kOp, usable(w) && is_act(out.dtype) && is_matrix(out, out.dim[0], w.k), "out must be [T, K]");
  TERN_OP_CHECK(kOp, is_vector(ids, DType::kI32, out.dim[0]), "ids must be [T] int32");
  return codes_rows(layout_of(w.n, w.k, w.first_group), w.data.data(), ids, out, stream);
}

// All behind block_wise_fp8 are for files only; "-zp": with zero points.
const CodeFormat kFormats[] = {
    {"wint8", CodeKind::kInt8, {1, 0, 127.0f}},
    {"wint4", CodeKind::kInt4, {1, 0, 7.0f}},
    {"wint4-32", CodeKind::kInt4, {1, 32, 7.0f}},
    {"wint4-64", CodeKind::kInt4, {1, 64, 7.0f}},
    {"wint4-128", CodeKind::kInt4, {1, 128, 7.0f}},
    {"block_wise_fp8", CodeKind::kE4m3, {128, 128, 448.0f}},
    {"channel_wise_fp8", CodeKind::kE4m3, {1, 0, 448.0f}},
    {"wint8-32", CodeKind::kInt8, {1, 32, 127.0f}},
    {"wint8-64", CodeKind::kInt8, {1, 64, 127.0f}},
    {"wint8-128", CodeKind::kInt8, {1, 128, 127.0f}},
    {"wint8-zp", CodeKind::kInt8, {1, 0, 127.0f, true}},
    {"wint8-32-zp", CodeKind::kInt8, {1, 32, 127.0f, true}},
    {"wint8-64-zp", CodeKind::kInt8, {1, 64, 127.0f, true}},
    {"wint8-128-zp", CodeKind::kInt8, {1, 128, 127.0f, true}},
    {"wint4-zp", CodeKind::kInt4, {1, 0, 7.0f, true}},
    {"wint4-32-zp", CodeKind::kInt4, {1, 32, 7.0f, true}},
    {"wint4-64-zp", CodeKind::kInt4, {1, 64, 7.0f, true}},
    {"wint4-128-zp", CodeKind::kInt4, {1, 128, 7.0f, true}},
};

}  // namespace

const ops::WeightFormat* find_code_format(const char* name) {
  for (const CodeFormat& f : kFormats) {
    if (std::strcmp(f.name(), name) == 0) return &f;
  }
  return nullptr;
}

}  // namespace tern::cuda
