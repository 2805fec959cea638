#include "model/rope/rope_frequencies.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace tern::model {
namespace {

// theta^(2i/d) in the reference's steps: exponent and power are each rounded to float32. One ulp of a frequency is a
// visible angle at position 100,000, so the order of roundings matters.
std::vector<float> powers(double theta, int dim) {
  std::vector<float> p(static_cast<size_t>(dim) / 2);
  for (size_t i = 0; i < p.size(); ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(dim);
    p[i] = static_cast<float>(std::pow(theta, static_cast<double>(exponent)));
  }
  return p;
}

std::vector<float> inverse(const std::vector<float>& p) {
  std::vector<float> inv(p.size());
  for (size_t i = 0; i < p.size(); ++i) inv[i] = 1.0f / p[i];
  return inv;
}

std::vector<float> dynamic(const RopeSpec& s, int length) {
  const double max = s.max_position;
  const double n = std::max<double>(length, max);
  const double d = s.dim;
  const double theta = s.theta * std::pow(s.factor * n / max - (s.factor - 1.0), d / std::max(d - 2.0, 1.0));
  return inverse(powers(theta, s.dim));
}

std::vector<float> llama3(const RopeSpec& s) {
  std::vector<float> inv = inverse(powers(s.theta, s.dim));
  const double low_wavelength = s.original_max_position / s.low_freq_factor;
  const double high_wavelength = s.original_max_position / s.high_freq_factor;
  for (float& f : inv) {
    const double wavelength = 2.0 * std::numbers::pi / static_cast<double>(f);
    const double scaled = static_cast<double>(f) / s.factor;
    if (wavelength > low_wavelength) {
      f = static_cast<float>(scaled);
    } else if (wavelength >= high_wavelength) {
      const double smooth =
          (s.original_max_position / wavelength - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor);
      f = static_cast<float>((1.0 - smooth) * scaled + smooth * static_cast<double>(f));
    }
  }
  return inv;
}

std::vector<float> yarn(const RopeSpec& s) {
  const std::vector<float> p = powers(s.theta, s.dim);
  const double d = s.dim;
  const auto correction = [&](double rotations) {
    return d * std::log(s.original_max_position / (rotations * 2.0 * std::numbers::pi)) / (2.0 * std::log(s.theta));
  };
  double low = correction(s.beta_fast), high = correction(s.beta_slow);
  if (s.truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0), high = std::min(high, d - 1.0);
  if (low == high) high += 0.001;
  std::vector<float> inv(p.size());
  for (size_t i = 0; i < p.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    const double extrapolated = 1.0 / static_cast<double>(p[i]);
    inv[i] = static_cast<float>(extrapolated / s.factor * ramp + extrapolated * (1.0 - ramp));
  }
  return inv;
}

float yarn_factor(const RopeSpec& s) {
  if (s.attention_factor) return static_cast<float>(*s.attention_factor);
  if (s.mscale != 0.0 && s.mscale_all_dim != 0.0)
    return static_cast<float>(yarn_mscale(s.factor, s.mscale) / yarn_mscale(s.factor, s.mscale_all_dim));
  return static_cast<float>(yarn_mscale(s.factor, 1.0));
}

// Which position row each pair reads (models-other.md 1.3).
std::vector<uint8_t> axes(const RopeSpec& s) {
  std::vector<uint8_t> axis(static_cast<size_t>(s.dim) / 2, 0);
  if (s.sections.empty()) return axis;
  if (s.interleaved_sections) {
    for (uint8_t a = 1; a <= 2; ++a) {
      const size_t end = std::min(axis.size(), static_cast<size_t>(s.sections[a]) * 3);
      for (size_t i = a; i < end; i += 3) axis[i] = a;
    }
    return axis;
  }
  size_t i = 0;
  for (uint8_t a = 0; a < 3; ++a)
    for (int k = 0; k < s.sections[a] && i < axis.size(); ++k) axis[i++] = a;
  return axis;
}

}  // namespace

double yarn_mscale(double s, double m) { return s <= 1.0 ? 1.0 : 0.1 * m * std::log(s) + 1.0; }

RopeTable make_rope_table(const RopeSpec& s, int length) {
  RopeTable table;
  switch (s.scaling) {
    case RopeScaling::kDefault:
      table.inv_freq = inverse(powers(s.theta, s.dim));
      break;
    case RopeScaling::kLinear:
      table.inv_freq = inverse(powers(s.theta, s.dim));
      for (float& f : table.inv_freq) f = static_cast<float>(static_cast<double>(f) / s.factor);
      break;
    case RopeScaling::kDynamic:
      table.inv_freq = dynamic(s, length);
      break;
    case RopeScaling::kLlama3:
      table.inv_freq = llama3(s);
      break;
    case RopeScaling::kYarn:
      table.inv_freq = yarn(s);
      table.factor = yarn_factor(s);
      break;
  }
  if (s.position_divisor != 1.0)
    for (float& f : table.inv_freq) f = static_cast<float>(static_cast<double>(f) / s.position_divisor);
  table.axis = s.pair_axis.empty() ? axes(s) : s.pair_axis;
  return table;
}

}  // namespace tern::model
