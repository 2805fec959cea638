// Linear layers on a CPU: weights as bf16 or float32.
#include <algorithm>
#include <cstring>

#include "base/bf16.h"
#include "ops/cpu/panel_format.h"
#include "ops/op_check.h"

namespace tern::ops::cpu {
namespace {

using kernels::KernelTable;

class ValueFormat final : public PanelFormat {
 public:
  ValueFormat(const char* name, DType type) : PanelFormat(name, {.type = type}) {}
  Status pack(TensorView source, int64_t row_begin, int64_t n, int64_t k, void* dst) const override;
  Status gather_rows(const PackedWeight& weight, TensorView ids, TensorView out, device::Stream stream) const override;

 private:
  void pack_panel(const KernelTable& t, const TensorView& source, int64_t row, int64_t rows, int64_t k,
                  char* panel) const;
};

// Through a zero-padded copy of 64 rows by 256 k, unless the source already has the right form.
void ValueFormat::pack_panel(const KernelTable& t, const TensorView& source, int64_t row, int64_t rows, int64_t k,
                             char* panel) const {
  const DType type = layout().type;
  const auto in = static_cast<int64_t>(dtype_bytes(source.dtype)), bytes = static_cast<int64_t>(dtype_bytes(type));
  const int64_t per_word = 4 / bytes;
  auto* words = reinterpret_cast<uint32_t*>(panel);
  if (rows == kPanel && source.dtype == type && k % per_word == 0) {
    t.transpose32(source.row_bytes(row), source.stride[0] * bytes, words, kPanel, kPanel, k / per_word);
    return;
  }
  alignas(64) char staged[kPanel * kKBlock * 4];
  for (int64_t k0 = 0; k0 < k; k0 += kKBlock) {
    const int64_t count = std::min(kKBlock, k - k0);
    std::memset(staged, 0, sizeof staged);
    for (int64_t r = 0; r < rows; ++r) {
      const char* src = source.row_bytes(row + r) + k0 * in;
      char* to = staged + r * kKBlock * bytes;
      if (source.dtype == type) {
        std::memcpy(to, src, static_cast<size_t>(count * in));
      } else if (type == DType::kBF16) {
        t.narrow(reinterpret_cast<const float*>(src), reinterpret_cast<uint16_t*>(to), count);
      } else {
        t.widen(reinterpret_cast<const uint16_t*>(src), reinterpret_cast<float*>(to), count);
      }
    }
    t.transpose32(staged, kKBlock * bytes, words + k0 / per_word * kPanel, kPanel, kPanel, ceil_div(count, per_word));
  }
}

Status ValueFormat::pack(TensorView source, int64_t row_begin, int64_t n, int64_t k, void* dst) const {
  TERN_RETURN_IF_ERROR(check_slice(source, row_begin, n, k));
  const KernelTable& t = kernels::kernel_table();
  for (int64_t r = 0; r < source.dim[0]; r += kPanel) {
    pack_panel(t, source, r, std::min(kPanel, source.dim[0] - r), k,
               static_cast<char*>(dst) + (row_begin + r) / kPanel * layout().bytes(k));
  }
  return {};
}

Status ValueFormat::gather_rows(const PackedWeight& w, TensorView ids, TensorView out, device::Stream stream) const {
  constexpr const char* kOp = "embedding";
  TERN_OP_CHECK(kOp, usable(w) && is_act(out.dtype) && is_matrix(out, out.dim[0], w.k), "out must be [T, K]");
  TERN_OP_CHECK(kOp, is_vector(ids, DType::kI32, out.dim[0]), "ids must be [T] int32");
  const auto* id = ids.as<const int32_t>();
  for (int64_t t = 0; t < out.dim[0]; ++t) TERN_OP_CHECK(kOp, id[t] >= 0 && id[t] < w.n, "a token id is out of range");
  for_ranges(stream, out.dim[0], row_grain(4 * w.k), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const char* src = w.data.data() + id[t] / kPanel * layout().bytes(w.k) + id[t] % kPanel * 4;
      char* dst = out.row_bytes(t);
      for (int64_t k = 0; k < w.k; ++k) {
        float v;
        if (layout().type == DType::kBF16) {
          bf16 b;
          std::memcpy(&b, src + k / 2 * kPanel * 4 + k % 2 * 2, sizeof b);
          v = to_float(b);
        } else {
          std::memcpy(&v, src + k * kPanel * 4, sizeof v);
        }
        if (out.dtype == DType::kBF16) {
          reinterpret_cast<bf16*>(dst)[k] = to_bf16(v);
        } else {
          reinterpret_cast<float*>(dst)[k] = v;
        }
      }
    }
  });
  return {};
}

const ValueFormat kBf16Format("bf16", DType::kBF16);
const ValueFormat kF32Format("f32", DType::kF32);

}  // namespace

const WeightFormat* find_weight_format(const char* name) {
  for (const ValueFormat* f : {&kBf16Format, &kF32Format}) {
    if (std::strcmp(f->name(), name) == 0) return f;
  }
  return find_code_format(name);
}

}  // namespace tern::ops::cpu
