#include "ops/quantize.h"

#include <algorithm>
#include <cstring>

#include "base/checked.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/kernel_table.h"

namespace tern::ops {
namespace {

// Magnitudes of floats are ordered as their bits are, NaN above all. Files need not align their tensors.
uint32_t largest(const char* row, DType type, int64_t n) {
  if (type == DType::kBF16) {
    uint16_t top = 0;
    for (int64_t i = 0; i < n; ++i) {
      uint16_t bits;
      std::memcpy(&bits, row + 2 * i, sizeof bits);
      top = std::max(top, static_cast<uint16_t>(bits & 0x7fffu));
    }
    return static_cast<uint32_t>(top) << 16;
  }
  int32_t top = 0;
  for (int64_t i = 0; i < n; ++i) {
    int32_t bits;
    std::memcpy(&bits, row + 4 * i, sizeof bits);
    top = std::max(top, bits & 0x7fffffff);
  }
  return static_cast<uint32_t>(top);
}

}  // namespace

int64_t scale_groups(const ScaleBlocks& blocks, int64_t k, int64_t first_group) {
  if (blocks.cols == 0) return 1;
  return first_group == 0 ? ceil_div(k, blocks.cols) : 1 + ceil_div(std::max<int64_t>(k - first_group, 0), blocks.cols);
}

int64_t first_group_of(const ScaleBlocks& blocks, int64_t begin) {
  return blocks.cols == 0 || begin % blocks.cols == 0 ? 0 : blocks.cols - begin % blocks.cols;
}

float scale_of(TensorView values, int64_t begin, int64_t end, float bound) {
  uint32_t top = 0;
  for (int64_t r = 0; r < values.dim[0]; ++r) {
    const char* row = values.row_bytes(r) + begin * static_cast<int64_t>(dtype_bytes(values.dtype));
    top = std::max(top, largest(row, values.dtype, end - begin));
  }
  if (top >= 0x7f800000u) return -1.0f;
  float magnitude;
  std::memcpy(&magnitude, &top, sizeof magnitude);
  return magnitude / bound;
}

void encode_rows(TensorView source, TensorView scales, const ScaleBlocks& blocks, bool e4m3, TensorView codes) {
  const kernels::CodeKernels& kernels = kernels::kernel_table().codes;
  const int64_t k = source.dim[1], group = blocks.cols == 0 ? k : blocks.cols;
  const int is_bf16 = source.dtype == DType::kBF16;
  for (int64_t r = 0; r < source.dim[0]; ++r) {
    const auto* scale = reinterpret_cast<const float*>(scales.row_bytes(r));
    auto* to = reinterpret_cast<uint8_t*>(codes.row_bytes(r));
    for (int64_t k0 = 0; k0 < k; k0 += group, ++scale) {
      const char* x = source.row_bytes(r) + k0 * static_cast<int64_t>(dtype_bytes(source.dtype));
      const int64_t n = std::min(group, k - k0);
      if (e4m3) {
        kernels.encode_e4m3(x, is_bf16, *scale, to + k0, n);
      } else {
        kernels.encode_int(x, is_bf16, *scale, blocks.bound, to + k0, n);
      }
    }
  }
}

}  // namespace tern::ops
