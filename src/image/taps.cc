#include "image/taps.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace tern::image {
namespace {

double bilinear(double x) {
  x = std::fabs(x);
  return x < 1.0 ? 1.0 - x : 0.0;
}

// Keys' kernel with a = -0.5; the order of operations decides the last bit.
double bicubic(double x) {
  constexpr double a = -0.5;
  x = std::fabs(x);
  if (x < 1.0) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1;
  if (x < 2.0) return (((x - 5) * x + 8) * x - 4) * a;
  return 0.0;
}

double sinc(double x) {
  if (x == 0.0) return 1.0;
  x = x * std::numbers::pi;
  return std::sin(x) / x;
}

double lanczos(double x) { return -3.0 <= x && x < 3.0 ? sinc(x) * sinc(x / 3) : 0.0; }

struct Kernel {
  double (*value)(double);
  double support;
};

Kernel kernel_of(Filter filter) {
  switch (filter) {
    case Filter::kLanczos:
      return {lanczos, 3.0};
    case Filter::kBilinear:
      return {bilinear, 1.0};
    case Filter::kBicubic:
      break;
  }
  return {bicubic, 2.0};
}

int32_t to_fixed(double v) { return static_cast<int32_t>((v < 0 ? -0.5 : 0.5) + v * (1 << 22)); }

// k = 65536 * high + low.
int16_t low_of(int32_t k) { return static_cast<int16_t>(k & 0xffff); }
int16_t high_of(int32_t k) { return static_cast<int16_t>((k - low_of(k)) / 65536); }

int32_t pack(int16_t a, int16_t b) {
  return static_cast<int32_t>(static_cast<uint32_t>(static_cast<uint16_t>(b)) << 16 | static_cast<uint16_t>(a));
}

}  // namespace

Taps make_taps(int in, int out, Filter filter) {
  const Kernel kernel = kernel_of(filter);
  const double scale = static_cast<double>(in) / out, widened = std::max(scale, 1.0);
  const double support = kernel.support * widened, narrowed = 1.0 / widened;
  Taps result;
  result.first.resize(out);
  result.count.resize(out);
  for (int i = 0; i < out; ++i) {
    const double centre = (i + 0.5) * scale;
    const int first = std::max(static_cast<int>(centre - support + 0.5), 0);
    const int end = std::min(static_cast<int>(centre + support + 0.5), in);
    result.first[i] = first;
    result.count[i] = end - first;
    result.stride = std::max(result.stride, end - first);
  }
  result.taps.resize(static_cast<size_t>(out) * result.stride);
  std::vector<double> weights(result.stride);
  for (int i = 0; i < out; ++i) {
    const double centre = (i + 0.5) * scale;
    const int count = result.count[i];
    double sum = 0.0;
    for (int t = 0; t < count; ++t) {
      weights[t] = kernel.value((t + result.first[i] - centre + 0.5) * narrowed);
      sum += weights[t];
    }
    int32_t* at = &result.taps[static_cast<size_t>(i) * result.stride];
    for (int t = 0; t < count; ++t) at[t] = to_fixed(sum != 0.0 ? weights[t] / sum : weights[t]);
  }
  return result;
}

HorizontalTaps::HorizontalTaps(Taps taps, int in) : taps_(std::move(taps)) {
  const int out = static_cast<int>(taps_.first.size()), groups = (out + 3) / 4;
  pairs_ = taps_.stride <= 5 ? 3 : 2;
  windows_ = taps_.stride <= 5 ? 1 : (taps_.stride + 3) / 4;
  const int covered = taps_.stride <= 5 ? 5 : windows_ * 4;  // source pixels that a lane reads
  start_.assign(static_cast<size_t>(groups) * 4, 0);
  low_.assign(static_cast<size_t>(groups) * windows_ * pairs_ * 32, 0);
  high_.assign(low_.size(), 0);
  for (int x = 0; x < out; ++x) {
    // Windows that would reach over the end of the row are moved to the left; what they cover too much counts zero.
    const int first = std::min(taps_.first[x], std::max(in - covered, 0)), shift = taps_.first[x] - first;
    start_[x] = 3 * first;
    for (int t = 0; t < taps_.count[x]; ++t) {
      const int32_t k = taps_.taps[static_cast<size_t>(x) * taps_.stride + t];
      const int at = t + shift, per_window = pairs_ == 3 ? 5 : 4, w = at / per_window, in_window = at % per_window;
      const size_t block = ((static_cast<size_t>(x / 4) * windows_ + w) * pairs_ + in_window / 2) * 4 + x % 4;
      for (int c = 0; c < 3; ++c) {
        low_[block * 8 + 2 * c + in_window % 2] = low_of(k);
        high_[block * 8 + 2 * c + in_window % 2] = high_of(k);
      }
    }
  }
}

HorizontalTable HorizontalTaps::table() const {
  return {static_cast<int>(taps_.first.size()),
          windows_,
          pairs_,
          start_.data(),
          low_.data(),
          high_.data(),
          taps_.first.data(),
          taps_.count.data(),
          taps_.taps.data(),
          taps_.stride};
}

VerticalTable::VerticalTable(Taps taps) : taps_(std::move(taps)), pairs_((taps_.stride + 1) / 2) {
  const size_t rows = taps_.first.size();
  low_.resize(rows * pairs_);
  high_.resize(rows * pairs_);
  for (size_t y = 0; y < rows; ++y) {
    const int32_t* k = &taps_.taps[y * taps_.stride];
    for (int p = 0; p < pairs_; ++p) {
      const int32_t a = k[2 * p], b = 2 * p + 1 < taps_.stride ? k[2 * p + 1] : 0;
      low_[y * pairs_ + p] = pack(low_of(a), low_of(b));
      high_[y * pairs_ + p] = pack(high_of(a), high_of(b));
    }
  }
}

VerticalTaps VerticalTable::row(int y) const {
  return {taps_.count[y], &taps_.taps[static_cast<size_t>(y) * taps_.stride], &low_[static_cast<size_t>(y) * pairs_],
          &high_[static_cast<size_t>(y) * pairs_]};
}

}  // namespace tern::image
