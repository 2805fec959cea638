// Weight formats that exist in tests only: rows as float32, and int8 with a scale per row.
#pragma once

#include <cmath>
#include <cstring>
#include <vector>

#include "ops/linear.h"

namespace tern::model::testing {

// Shared loops: subclasses say how a value is kept.
class RowFormat : public ops::WeightFormat {
 public:
  int64_t row_granularity() const override { return 1; }
  virtual void decode(const char* data, int64_t n, int64_t k, int64_t row, float* out) const = 0;

  Status run(const ops::LinearParams& p, device::Stream) const override {
    product(p.x.row_bytes(0), row_bytes(p.x), p.x.dtype, p.x.dim[0], *p.weight, p.bias.as<const float>(),
            p.out.row_bytes(0), row_bytes(p.out), p.out.dtype);
    return {};
  }
  Status run_grouped(const ops::GroupedLinearParams& p, device::Stream) const override {
    const auto* offsets = p.offsets.as<const int32_t>();
    for (size_t e = 0; e < p.weights.size(); ++e)
      product(p.x.row_bytes(offsets[e]), row_bytes(p.x), p.x.dtype, offsets[e + 1] - offsets[e], p.weights[e], nullptr,
              p.out.row_bytes(offsets[e]), row_bytes(p.out), p.out.dtype);
    return {};
  }
  Status run_heads(const ops::HeadLinearParams& p, device::Stream) const override {
    for (int64_t h = 0; h < p.x.dim[1]; ++h)
      product(p.x.row_bytes(0) + h * p.x.stride[1] * static_cast<int64_t>(dtype_bytes(p.x.dtype)), row_bytes(p.x),
              p.x.dtype, p.x.dim[0], p.weights[static_cast<size_t>(h)], nullptr,
              p.out.row_bytes(0) + h * p.out.stride[1] * static_cast<int64_t>(dtype_bytes(p.out.dtype)),
              row_bytes(p.out), p.out.dtype);
    return {};
  }

 protected:
  static float get(const void* p, DType t, int64_t i) {
    return t == DType::kBF16 ? to_float(static_cast<const bf16*>(p)[i]) : static_cast<const float*>(p)[i];
  }

 private:
  static int64_t row_bytes(const TensorView& v) { return v.stride[0] * static_cast<int64_t>(dtype_bytes(v.dtype)); }
  void product(const char* x, int64_t x_stride, DType xt, int64_t rows, const ops::PackedWeight& w, const float* bias,
               char* out, int64_t out_stride, DType ot) const {
    std::vector<float> row(static_cast<size_t>(w.k));
    for (int64_t n = 0; n < w.n; ++n) {
      decode(w.data.data(), w.n, w.k, n, row.data());
      for (int64_t t = 0; t < rows; ++t) {
        float sum = 0.0f;
        for (int64_t k = 0; k < w.k; ++k) sum += get(x + t * x_stride, xt, k) * row[static_cast<size_t>(k)];
        if (bias != nullptr) sum += bias[n];
        if (ot == DType::kBF16) {
          reinterpret_cast<bf16*>(out + t * out_stride)[n] = to_bf16(sum);
        } else {
          reinterpret_cast<float*>(out + t * out_stride)[n] = sum;
        }
      }
    }
  }
};

class PlainFormat final : public RowFormat {
 public:
  const char* name() const override { return "test-plain"; }
  size_t packed_bytes(int64_t n, int64_t k) const override { return static_cast<size_t>(n * k) * sizeof(float); }
  Status pack(TensorView source, int64_t row, int64_t, int64_t k, void* dst) const override {
    for (int64_t r = 0; r < source.dim[0]; ++r)
      for (int64_t c = 0; c < k; ++c)
        static_cast<float*>(dst)[(row + r) * k + c] = get(source.row_bytes(r), source.dtype, c);
    return {};
  }
  void decode(const char* data, int64_t, int64_t k, int64_t row, float* out) const override {
    std::memcpy(out, reinterpret_cast<const float*>(data) + row * k, static_cast<size_t>(k) * sizeof(float));
  }
};

// [n] float scales, then [n, k] int8.
class Int8Format final : public RowFormat {
 public:
  const char* name() const override { return "test-int8"; }
  int64_t row_granularity() const override { return 8; }
  size_t packed_bytes(int64_t n, int64_t k) const override {
    return static_cast<size_t>(n) * (sizeof(float) + static_cast<size_t>(k));
  }
  Status pack(TensorView source, int64_t row, int64_t n, int64_t k, void* dst) const override {
    if (row % row_granularity() != 0)
      return make_error(ErrorCode::kInternal, "a slice does not begin at a multiple of 8 rows");
    auto* scales = static_cast<float*>(dst);
    auto* codes = reinterpret_cast<int8_t*>(scales + n);
    for (int64_t r = 0; r < source.dim[0]; ++r) {
      float top = 0.0f;
      for (int64_t c = 0; c < k; ++c) top = std::max(top, std::fabs(get(source.row_bytes(r), source.dtype, c)));
      scales[row + r] = top / 127.0f;
      for (int64_t c = 0; c < k; ++c)
        codes[(row + r) * k + c] =
            top == 0.0f ? int8_t{0}
                        : static_cast<int8_t>(std::lround(get(source.row_bytes(r), source.dtype, c) / top * 127.0f));
    }
    return {};
  }
  void decode(const char* data, int64_t n, int64_t k, int64_t row, float* out) const override {
    const auto* scales = reinterpret_cast<const float*>(data);
    const auto* codes = reinterpret_cast<const int8_t*>(scales + n) + row * k;
    for (int64_t c = 0; c < k; ++c) out[c] = scales[row] * static_cast<float>(codes[c]);
  }
};

}  // namespace tern::model::testing
