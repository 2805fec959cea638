// Quantized weights on a CPU: int8 and int4 with a scale per row or group of columns, e4m3 with a scale per block.
#include <algorithm>
#include <cstring>

#include "base/bf16.h"
#include "ops/cpu/panel_format.h"
#include "ops/op_check.h"
#include "ops/quantize.h"

namespace tern::ops::cpu {
namespace {

using kernels::KernelTable;

// k that lie in one word of codes at most: a slice's first group of scales is whole words.
constexpr int64_t kCodeStep = 8;

class CodeFormat final : public PanelFormat {
 public:
  CodeFormat(const char* name, Codes codes, ScaleBlocks blocks)
      : PanelFormat(name, {.codes = codes, .group = blocks.cols, .zeros = blocks.zeros}), blocks_(blocks) {}
  ScaleBlocks scale_blocks() const override { return blocks_; }
  int64_t column_grain() const override { return kCodeStep; }
  // Slices hold whole blocks of scales.
  int64_t row_granularity() const override { return std::max(kPanel, blocks_.rows); }
  Status pack(TensorView source, int64_t row_begin, int64_t n, int64_t k, void* dst) const override;
  Status pack_scaled(const ScaledRows& rows, void* dst) const override;
  // Codes times their scales, float32.
  Status gather_rows(const PackedWeight& weight, TensorView ids, TensorView out, device::Stream stream) const override;

 private:
  DType code_type() const { return layout().codes == Codes::kE4m3 ? DType::kF8E4M3 : DType::kI8; }
  void pack_panel(const KernelTable& t, const ScaledRows& s, int64_t row, int64_t rows, char* panel) const;
  void encode(const KernelTable& t, const ScaledRows& s, int64_t row, int64_t k0, int64_t count, uint8_t* codes) const;

  const ScaleBlocks blocks_;
};

Status CodeFormat::pack(TensorView source, int64_t row_begin, int64_t n, int64_t k, void* dst) const {
  TERN_RETURN_IF_ERROR(check_slice(source, row_begin, n, k));
  TERN_OP_CHECK("pack", !blocks_.zeros, "weights with zero points are packed from codes");
  TERN_OP_CHECK("pack", row_begin % blocks_.rows == 0, "slices start at a block of scales");
  std::vector<float> scales;
  TERN_OP_CHECK("pack", scales_of(blocks_, source, scales), "NaN and infinity cannot be quantized");
  const int64_t groups = scale_groups(blocks_, k, 0);
  return pack_scaled({source, tensor2(scales.data(), DType::kF32, source.dim[0], groups), row_begin, n, k, 0}, dst);
}

Status CodeFormat::pack_scaled(const ScaledRows& s, void* dst) const {
  TensorView source = s.source;
  if (source.dtype == code_type()) source.dtype = DType::kF32;  // for the checks of shapes
  TERN_RETURN_IF_ERROR(check_slice(source, s.row_begin, s.n, s.k));
  const int64_t rows = s.source.dim[0], groups = scale_groups(blocks_, s.k, s.first_group);
  TERN_OP_CHECK("pack", s.first_group % kCodeStep == 0 && groups <= layout().groups(s.k),
                "a rank's columns must be multiples of 8 where scales serve groups of columns");
  TERN_OP_CHECK("pack", s.scales.dtype == DType::kF32 && is_matrix(s.scales, rows, groups),
                "there must be a scale for every row and group");
  TERN_OP_CHECK("pack", (s.zeros.data != nullptr) == blocks_.zeros && (!blocks_.zeros || s.source.dtype == code_type()),
                "zero points go with codes of formats that have them");
  TERN_OP_CHECK("pack", !blocks_.zeros || (s.zeros.dtype == DType::kF32 && is_matrix(s.zeros, rows, groups)),
                "there must be a zero point for every row and group");
  const KernelTable& t = kernels::kernel_table();
  for (int64_t r = 0; r < rows; r += kPanel) {
    pack_panel(t, s, r, std::min(kPanel, rows - r),
               static_cast<char*>(dst) + (s.row_begin + r) / kPanel * layout().bytes(s.k));
  }
  return {};
}

// Codes of `count` values of one row from k0 on; a group may end among them.
void CodeFormat::encode(const KernelTable& t, const ScaledRows& s, int64_t row, int64_t k0, int64_t count,
                        uint8_t* codes) const {
  if (s.source.dtype == code_type()) {
    std::memcpy(codes, s.source.row_bytes(row) + k0, static_cast<size_t>(count));
    return;
  }
  const auto* scales = reinterpret_cast<const float*>(s.scales.row_bytes(row));
  const int64_t group = layout().group == 0 ? s.k : layout().group;
  const int64_t shift = s.first_group == 0 ? 0 : group - s.first_group;  // of the slice in the groups' grid
  const auto bytes = static_cast<int64_t>(dtype_bytes(s.source.dtype));
  const int is_bf16 = s.source.dtype == DType::kBF16;
  for (int64_t k = k0, end; k < k0 + count; k = end) {
    const int64_t g = (k + shift) / group;
    end = std::min((g + 1) * group - shift, k0 + count);
    const char* x = s.source.row_bytes(row) + k * bytes;
    if (layout().codes == Codes::kE4m3) {
      t.codes.encode_e4m3(x, is_bf16, scales[g], codes + (k - k0), end - k);
    } else {
      t.codes.encode_int(x, is_bf16, scales[g], blocks_.bound, codes + (k - k0), end - k);
    }
  }
}

// Codes of 64 rows by 256 k at a time, then transposed by words of four codes.
void CodeFormat::pack_panel(const KernelTable& t, const ScaledRows& s, int64_t row, int64_t rows, char* panel) const {
  const bool half = layout().codes == Codes::kInt4;
  uint8_t codes[kPanel][kKBlock];
  for (int64_t k0 = 0; k0 < s.k; k0 += kKBlock) {
    const int64_t count = std::min(kKBlock, s.k - k0);
    if (count < kKBlock || rows < kPanel) std::memset(codes, 0, sizeof codes);
    for (int64_t r = 0; r < rows; ++r) {
      encode(t, s, row + r, k0, count, codes[r]);
      if (!half) continue;
      for (int64_t i = 0; i < kKBlock / 8; ++i) {
        for (int64_t j = 0; j < 4; ++j)
          codes[r][4 * i + j] = static_cast<uint8_t>((codes[r][8 * i + j] & 15) | codes[r][8 * i + 4 + j] << 4);
      }
    }
    t.transpose32(codes, kKBlock, reinterpret_cast<uint32_t*>(panel + layout().value_bytes(k0)), kPanel, kPanel,
                  ceil_div<int64_t>(count, half ? 8 : 4));
  }
  auto* behind = reinterpret_cast<float*>(panel + layout().value_bytes(s.k));
  for (const TensorView* values : {&s.scales, &s.zeros}) {
    if (values->data == nullptr) continue;
    const int64_t groups = values->dim[1];
    for (int64_t g = 0; g < layout().groups(s.k); ++g, behind += kPanel) {
      for (int64_t r = 0; r < kPanel; ++r)
        behind[r] = r < rows && g < groups ? reinterpret_cast<const float*>(values->row_bytes(row + r))[g] : 0.0f;
    }
  }
}

Status CodeFormat::gather_rows(const PackedWeight& w, TensorView ids, TensorView out, device::Stream stream) const {
  constexpr const char* kOp = "embedding";
  TERN_OP_CHECK(kOp, usable(w) && is_act(out.dtype) && is_matrix(out, out.dim[0], w.k), "out must be [T, K]");
  TERN_OP_CHECK(kOp, is_vector(ids, DType::kI32, out.dim[0]), "ids must be [T] int32");
  const auto* id = ids.as<const int32_t>();
  for (int64_t t = 0; t < out.dim[0]; ++t) TERN_OP_CHECK(kOp, id[t] >= 0 && id[t] < w.n, "a token id is out of range");
  const KernelTable& t = kernels::kernel_table();
  const int64_t group = layout().group == 0 ? w.k : layout().group;
  const int64_t shift = w.first_group == 0 ? 0 : group - w.first_group;
  for_ranges(stream, out.dim[0], 1, [&](int64_t begin, int64_t end) {
    uint16_t pairs[kKBlock * kPanel];
    for (int64_t r = begin; r < end; ++r) {
      const char* panel = w.data.data() + id[r] / kPanel * layout().bytes(w.k);
      const auto* scales = reinterpret_cast<const float*>(panel + layout().value_bytes(w.k)) + id[r] % kPanel;
      for (int64_t k = 0; k < w.k; ++k) {
        if (k % kKBlock == 0)
          widen_codes(t, layout().codes, panel + layout().value_bytes(k), std::min(kKBlock, w.k - k), pairs);
        const bf16 code{pairs[k % kKBlock / 2 * 2 * kPanel + id[r] % kPanel * 2 + k % 2]};
        const float* scale = scales + (k + shift) / group * kPanel;
        const float zero = layout().zeros ? scale[layout().groups(w.k) * kPanel] : 0.0f;
        const float v = (to_float(code) - zero) * scale[0];
        if (out.dtype == DType::kBF16) {
          reinterpret_cast<bf16*>(out.row_bytes(r))[k] = to_bf16(v);
        } else {
          reinterpret_cast<float*>(out.row_bytes(r))[k] = v;
        }
      }
    }
  });
  return {};
}

// The latter half is for files only; "-zp": with zero points.
const CodeFormat kFormats[] = {
    {"wint8", Codes::kInt8, {1, 0, 127.0f}},
    {"wint4", Codes::kInt4, {1, 0, 7.0f}},
    {"wint4-32", Codes::kInt4, {1, 32, 7.0f}},
    {"wint4-64", Codes::kInt4, {1, 64, 7.0f}},
    {"wint4-128", Codes::kInt4, {1, 128, 7.0f}},
    {"block_wise_fp8", Codes::kE4m3, {128, 128, 448.0f}},
    {"channel_wise_fp8", Codes::kE4m3, {1, 0, 448.0f}},
    {"wint8-32", Codes::kInt8, {1, 32, 127.0f}},
    {"wint8-64", Codes::kInt8, {1, 64, 127.0f}},
    {"wint8-128", Codes::kInt8, {1, 128, 127.0f}},
    {"wint8-zp", Codes::kInt8, {1, 0, 127.0f, true}},
    {"wint8-32-zp", Codes::kInt8, {1, 32, 127.0f, true}},
    {"wint8-64-zp", Codes::kInt8, {1, 64, 127.0f, true}},
    {"wint8-128-zp", Codes::kInt8, {1, 128, 127.0f, true}},
    {"wint4-zp", Codes::kInt4, {1, 0, 7.0f, true}},
    {"wint4-32-zp", Codes::kInt4, {1, 32, 7.0f, true}},
    {"wint4-64-zp", Codes::kInt4, {1, 64, 7.0f, true}},
    {"wint4-128-zp", Codes::kInt4, {1, 128, 7.0f, true}},
};

}  // namespace

const WeightFormat* find_code_format(const char* name) {
  for (const CodeFormat& f : kFormats) {
    if (std::strcmp(f.name(), name) == 0) return &f;
  }
  return nullptr;
}

}  // namespace tern::ops::cpu
