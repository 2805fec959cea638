#include <algorithm>
#include <cmath>
#include <cstring>

#include "model/weights/weight_source.h"

namespace tern::model {
namespace {

// Steele, Lea and Flood's SplitMix64 finalizer.
uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

uint64_t hash_name(const std::string& name, uint64_t seed) {
  uint64_t h = mix(seed);
  for (char c : name) h = mix(h ^ static_cast<unsigned char>(c));
  return h;
}

constexpr size_t kTable = 4096;

// The normal distribution's quantile by bisection: 4,096 values, once per load.
double normal_quantile(double p) {
  double lo = -6.0, hi = 6.0;
  for (int i = 0; i < 40; ++i) {
    const double mid = (lo + hi) / 2.0;
    (0.5 * std::erfc(-mid / std::sqrt(2.0)) < p ? lo : hi) = mid;
  }
  return lo;
}

float scale_of(const Parameter& p) {
  if (p.kind == ParameterKind::kBias) return 0.02f;
  if (p.kind == ParameterKind::kTable) return 0.02f;
  return 1.0f / std::sqrt(static_cast<float>(p.cols));
}

template <class T>
T rounded(float v) {
  if constexpr (std::is_same_v<T, bf16>) {
    return to_bf16(v);
  } else {
    return v;
  }
}

template <class T>
void fill_row(const T* values, uint64_t row_key, int64_t col, int64_t cols, T* dst, int64_t step) {
  for (int64_t c = col; c < col + cols;) {
    uint64_t bits = mix(row_key + static_cast<uint64_t>(c / 4)) >> (c % 4 * 16);
    for (const int64_t end = std::min(col + cols, (c / 4 + 1) * 4); c < end; ++c, bits >>= 16) {
      *dst = values[bits % kTable];
      dst += step;
    }
  }
}

}  // namespace

DummySource::DummySource(const std::vector<Parameter>& parameters, uint64_t seed)
    : parameters_(parameters), seed_(seed), normal_(kTable) {
  for (size_t i = 0; i < kTable; ++i)
    normal_[i] = static_cast<float>(normal_quantile((static_cast<double>(i) + 0.5) / kTable));
}

void DummySource::read(const Piece& piece, TensorView dst) const {
  const Parameter& p = parameters_[static_cast<size_t>(piece.parameter)];
  const auto fill = [&]<class T>(T*) {
    if (p.kind == ParameterKind::kNorm) {
      for (int64_t r = 0; r < piece.rows; ++r) *reinterpret_cast<T*>(dst.row_bytes(r)) = rounded<T>(1.0f);
      return;
    }
    T values[kTable];
    const float scale = scale_of(p);
    // Rounded to bfloat16 in either type, so that both load the same model.
    for (size_t i = 0; i < kTable; ++i) values[i] = rounded<T>(to_float(to_bf16(normal_[i] * scale)));
    const uint64_t key = hash_name(p.name, seed_);
    for (int64_t r = 0; r < piece.rows; ++r) {
      const uint64_t row_key = mix(key ^ static_cast<uint64_t>(piece.row + r));
      T* to = piece.transposed ? dst.as<T>() + r : reinterpret_cast<T*>(dst.row_bytes(r));
      fill_row(values, row_key, piece.col, piece.cols, to, piece.transposed ? dst.stride[0] : 1);
    }
  };
  if (dst.dtype == DType::kBF16) {
    fill(static_cast<bf16*>(nullptr));
  } else {
    fill(static_cast<float*>(nullptr));
  }
}

}  // namespace tern::model
