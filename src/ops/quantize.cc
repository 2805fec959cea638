#include "ops/quantize.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/checked.h"

namespace tern::ops {
namespace {

// The largest magnitudes so far, as bits of floats, side by side, so that many are compared at a time whatever runs
// they come in. Magnitudes are ordered as their bits are, NaN above all. Files need not align their tensors.
template <class T>
class Largest {
 public:
  void add(const char* row, int64_t n) {
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
      T bits[kLanes];
      std::memcpy(bits, row + i * static_cast<int64_t>(sizeof(T)), sizeof bits);
      for (int64_t j = 0; j < kLanes; ++j) {
        const auto magnitude = static_cast<T>(bits[j] & std::numeric_limits<T>::max());
        tops_[j] = std::max(tops_[j], magnitude);
      }
    }
    for (; i < n; ++i) {
      T bits;
      std::memcpy(&bits, row + i * static_cast<int64_t>(sizeof(T)), sizeof bits);
      tops_[0] = std::max(tops_[0], static_cast<T>(bits & std::numeric_limits<T>::max()));
    }
  }
  uint32_t bits() const { return static_cast<uint32_t>(*std::max_element(tops_, tops_ + kLanes)); }

 private:
  static constexpr int64_t kLanes = 32;
  T tops_[kLanes] = {};
};

}  // namespace

int64_t scale_groups(const ScaleBlocks& blocks, int64_t k, int64_t first_group) {
  if (blocks.cols == 0) return 1;
  return first_group == 0 ? ceil_div(k, blocks.cols) : 1 + ceil_div(std::max<int64_t>(k - first_group, 0), blocks.cols);
}

int64_t first_group_of(const ScaleBlocks& blocks, int64_t begin) {
  return blocks.cols == 0 || begin % blocks.cols == 0 ? 0 : blocks.cols - begin % blocks.cols;
}

float power_of_two_from(float scale) {
  int exponent = 0;
  const float half = std::frexp(scale, &exponent);  // in [0.5, 1)
  return scale == 0.0f ? 0.0f : std::ldexp(1.0f, half == 0.5f ? exponent - 1 : exponent);
}

float scale_of(const ScaleBlocks& blocks, TensorView values, int64_t begin, int64_t end) {
  const bool narrow = values.dtype == DType::kBF16;
  Largest<int16_t> bf16s;
  Largest<int32_t> floats;
  for (int64_t r = 0; r < values.dim[0]; ++r) {
    const char* row = values.row_bytes(r) + begin * static_cast<int64_t>(dtype_bytes(values.dtype));
    if (narrow) {
      bf16s.add(row, end - begin);
    } else {
      floats.add(row, end - begin);
    }
  }
  const uint32_t top = narrow ? bf16s.bits() << 16 : floats.bits();
  if (top >= 0x7f800000u) return -1.0f;
  float magnitude;
  std::memcpy(&magnitude, &top, sizeof magnitude);
  return blocks.powers_of_two ? power_of_two_from(magnitude / blocks.bound) : magnitude / blocks.bound;
}

bool scales_of(const ScaleBlocks& blocks, TensorView values, std::vector<float>& scales) {
  const int64_t rows = values.dim[0], k = values.dim[1], width = blocks.cols == 0 ? k : blocks.cols;
  const int64_t groups = scale_groups(blocks, k, 0);
  scales.resize(static_cast<size_t>(rows * groups));
  for (int64_t r = 0; r < rows; r += blocks.rows) {
    const int64_t end = std::min(r + blocks.rows, rows);
    const TensorView block = tensor2(values.row_bytes(r), values.dtype, end - r, k, values.stride[0]);
    for (int64_t g = 0; g < groups; ++g) {
      const float scale = scale_of(blocks, block, g * width, std::min((g + 1) * width, k));
      if (scale < 0.0f) return false;
      for (int64_t i = r; i < end; ++i) scales[static_cast<size_t>(i * groups + g)] = scale;
    }
  }
  return true;
}

}  // namespace tern::ops
