#include "model/quantized/coded_tensor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/bf16.h"
#include "base/checked.h"
#include "base/float8.h"
#include "ops/quantize.h"

namespace tern::model {
namespace {

// Files need not align their tensors.
template <class T>
T load_as(const char* data, int64_t index) {
  T v;
  std::memcpy(&v, data + index * static_cast<int64_t>(sizeof v), sizeof v);
  return v;
}

float float_at(const StoredTensor& t, int64_t index) {
  switch (t.dtype) {
    case FileType::kF32:
      return load_as<float>(t.data, index);
    case FileType::kF16:
      return half_to_float(load_as<uint16_t>(t.data, index));
    case FileType::kF8E8M0: {
      const auto exponent = load_as<uint8_t>(t.data, index);
      return exponent == 255 ? std::numeric_limits<float>::quiet_NaN() : std::ldexp(1.0f, exponent - 127);
    }
    default:
      return to_float(load_as<bf16>(t.data, index));
  }
}

// AWQ's order of eight codes in a word: output column j of the eight is code kInterleaved[j].
constexpr int kInterleaved[8] = {0, 4, 1, 5, 2, 6, 3, 7};

uint32_t field(uint32_t word, int64_t index, int bits) {
  return word >> (static_cast<uint32_t>(index) * static_cast<uint32_t>(bits)) & ((1u << bits) - 1);
}

// Codes [col, col + cols) of words along K, where word(i) is the i-th, less the middle.
template <class F>
void unpack(int bits, int64_t col, int64_t cols, uint8_t* out, F&& word) {
  const int64_t per = 32 / bits;
  const auto middle = static_cast<uint8_t>(1 << (bits - 1));
  for (int64_t c = 0; c < cols;) {
    const int64_t first = (col + c) % per, count = std::min(per - first, cols - c);
    const uint32_t w = word((col + c) / per);
    for (int64_t i = 0; i < count; ++i) out[c + i] = static_cast<uint8_t>(field(w, first + i, bits) - middle);
    c += count;
  }
}

// Words of a column lie below each other: a cache line of neighbouring rows at a time.
void read_gptq(const CodedTensor& t, int64_t row, int64_t col, TensorView to) {
  constexpr int64_t kLine = 16, kStep = 512;
  for (int64_t r0 = 0; r0 < to.dim[0]; r0 += kLine) {
    for (int64_t c0 = 0; c0 < to.dim[1]; c0 += kStep) {
      for (int64_t r = r0; r < std::min(r0 + kLine, to.dim[0]); ++r)
        unpack(t.scheme.bits, col + c0, std::min(kStep, to.dim[1] - c0),
               reinterpret_cast<uint8_t*>(to.row_bytes(r)) + c0,
               [&](int64_t i) { return load_as<uint32_t>(t.codes->data, i * t.n + row + r); });
    }
  }
}

void read_awq(const CodedTensor& t, int64_t row, int64_t col, TensorView to) {
  constexpr int64_t kLine = 128;  // rows whose words share a cache line
  const int64_t rows = to.dim[0], cols = to.dim[1];
  for (int64_t r0 = 0; r0 < rows; r0 += kLine) {
    const int64_t r1 = std::min(r0 + kLine, rows);
    for (int64_t c = 0; c < cols; ++c) {
      const char* line = t.codes->data + (col + c) * (t.n / 8) * 4;
      for (int64_t r = r0; r < r1; ++r) {
        const auto word = load_as<uint32_t>(line, (row + r) / 8);
        reinterpret_cast<uint8_t*>(to.row_bytes(r))[c] =
            static_cast<uint8_t>(field(word, kInterleaved[(row + r) % 8], 4) - 8);
      }
    }
  }
}

void read_packed(const CodedTensor& t, int64_t row, int64_t col, TensorView to) {
  const int64_t words = ceil_div<int64_t>(t.k, 32 / t.scheme.bits);
  for (int64_t r = 0; r < to.dim[0]; ++r)
    unpack(t.scheme.bits, col, to.dim[1], reinterpret_cast<uint8_t*>(to.row_bytes(r)),
           [&](int64_t i) { return load_as<uint32_t>(t.codes->data, (row + r) * words + i); });
}

// The zero point of row n and group g, less the middle of the codes.
float zero_at(const CodedTensor& t, int64_t n, int64_t g, int64_t groups) {
  const int bits = t.scheme.bits;
  const int64_t per = 32 / bits;
  const auto words = [&](int64_t at) { return load_as<uint32_t>(t.zeros->data, at); };
  const int middle = 1 << (bits - 1);
  switch (t.scheme.layout) {
    case CodeLayout::kGptq:
      return static_cast<float>(static_cast<int>(field(words(g * (t.n / per) + n / per), n % per, bits)) +
                                t.scheme.zero_shift - middle);
    case CodeLayout::kAwq:
      return static_cast<float>(static_cast<int>(field(words(g * (t.n / 8) + n / 8), kInterleaved[n % 8], 4)) - middle);
    case CodeLayout::kPacked:
      return static_cast<float>(static_cast<int>(field(words(n / per * groups + g), n % per, bits)) - middle);
    default:
      return static_cast<float>(load_as<int8_t>(t.zeros->data, t.zeros->bytes == 1 ? 0 : n * groups + g));
  }
}

}  // namespace

Status CodedTensor::read_codes(int64_t row, int64_t col, TensorView to) const {
  switch (scheme.layout) {
    case CodeLayout::kGptq:
      read_gptq(*this, row, col, to);
      return {};
    case CodeLayout::kAwq:
      read_awq(*this, row, col, to);
      return {};
    case CodeLayout::kPacked:
      read_packed(*this, row, col, to);
      return {};
    default:
      break;
  }
  const bool floats = scheme.layout == CodeLayout::kFloat8;
  const int8_t low = scheme.bits == 4 ? -8 : -128, high = scheme.bits == 4 ? 7 : 127;
  bool good = true;
  for (int64_t r = 0; r < to.dim[0]; ++r) {
    char* out = to.row_bytes(r);
    std::memcpy(out, codes->data + (row + r) * k + col, static_cast<size_t>(to.dim[1]));
    for (int64_t c = 0; c < to.dim[1]; ++c) {
      const auto code = static_cast<int8_t>(out[c]);
      good = good && (floats ? (code & 0x7f) != 0x7f : code >= low && code <= high);
    }
  }
  if (good) return {};
  return make_error(ErrorCode::kCorrupt, floats ? fmt::format("the codes of {} hold NaN", module)
                                                : fmt::format("a code of {} takes more than 4 bits", module));
}

Status CodedTensor::read_scales(int64_t row, int64_t rows, int64_t col, int64_t cols, TensorView scales_to,
                                TensorView zeros_to) const {
  const int64_t groups = ceil_div(k, group()), first = col / group(), count = (col + cols - 1) / group() - first + 1;
  const bool across_groups = across();
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t n_at = row + r;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t g = first + i;
      if (scales_to.data != nullptr) {
        const int64_t at = scheme.rows == 0 ? 0 : across_groups ? g * n + n_at : n_at / scheme.rows * groups + g;
        const float scale = float_at(*scales, at);
        if (!std::isfinite(scale) || scale == 0.0f)
          return make_error(ErrorCode::kCorrupt,
                            fmt::format("the scale of {} for row {} and group {} is {}", module, n_at, g, scale));
        if (scheme.pow2 && scale != ops::power_of_two_from(scale))
          return make_error(ErrorCode::kCorrupt,
                            fmt::format("quantization_config says scale_fmt ue8m0, but the scale of {} for row {} and "
                                        "group {} is {}, which is no power of two",
                                        module, n_at, g, scale));
        reinterpret_cast<float*>(scales_to.row_bytes(r))[i] = scale;
      }
      if (zeros == nullptr) continue;
      const float zero = zero_at(*this, n_at, g, groups);
      if (zeros_to.data != nullptr) reinterpret_cast<float*>(zeros_to.row_bytes(r))[i] = zero;
      if (scheme.neutral && zero != 0.0f)
        return make_error(
            ErrorCode::kCorrupt,
            fmt::format("quantization_config says sym, but {} has a zero point of {} for row {} and group "
                        "{}; \"sym\": false reads it",
                        module, zero + static_cast<float>(1 << (scheme.bits - 1)), n_at, g));
    }
  }
  return {};
}

Status CodedTensor::read_values(int64_t row, int64_t col, TensorView to) const {
  const int64_t rows = to.dim[0], cols = to.dim[1];
  const int64_t first = col / group(), count = (col + cols - 1) / group() - first + 1;
  std::vector<uint8_t> code(static_cast<size_t>(rows * cols));
  std::vector<float> scale(static_cast<size_t>(rows * count)), zero(scale.size());
  TERN_RETURN_IF_ERROR(read_codes(row, col, tensor2(code.data(), code_type(), rows, cols)));
  TERN_RETURN_IF_ERROR(read_scales(row, rows, col, cols, tensor2(scale.data(), DType::kF32, rows, count),
                                   tensor2(zero.data(), DType::kF32, rows, count)));
  const bool floats = scheme.layout == CodeLayout::kFloat8;
  for (int64_t r = 0; r < rows; ++r) {
    auto* out = reinterpret_cast<float*>(to.row_bytes(r));
    for (int64_t c = 0; c < cols; ++c) {
      const auto at = static_cast<size_t>(r * count + (col + c) / group() - first);
      const uint8_t q = code[static_cast<size_t>(r * cols + c)];
      const float whole = floats ? from_e4m3(q) : static_cast<float>(static_cast<int8_t>(q)) - zero[at];
      out[c] = whole * scale[at];
    }
  }
  return {};
}

}  // namespace tern::model
