#include "model/verify/checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tern::model {

TensorCheck compare_tensor(std::string name, const GoldenTensor& want, std::span<const float> got,
                           const VerifyTolerance& tolerance) {
  TensorCheck c{std::move(name), 0.0, 0.0, 0.0, tolerance.max, false};
  if (got.size() != want.values.size()) {
    c.name += fmt::format(" ({} values instead of {})", got.size(), want.values.size());
    return c;
  }
  double error = 0.0, square = 0.0;
  bool finite = true;
  for (size_t i = 0; i < got.size(); ++i) {
    const double w = want.values[i], d = static_cast<double>(got[i]) - w;
    finite = finite && std::isfinite(d);
    c.max_abs = std::max(c.max_abs, std::fabs(d));
    error += d * d, square += w * w;
  }
  c.relative = c.max_abs / std::max(want.max_abs(), 1e-30);
  c.rms = std::sqrt(error / std::max(square, 1e-30));
  c.ok = finite && c.relative <= tolerance.max && (tolerance.rms == 0.0 || c.rms <= tolerance.rms);
  return c;
}

int32_t arg_max(std::span<const float> row, const std::vector<int32_t>& banned) {
  int32_t best = -1;
  for (size_t i = 0; i < row.size(); ++i) {
    const auto id = static_cast<int32_t>(i);
    if (std::find(banned.begin(), banned.end(), id) != banned.end()) continue;
    if (best < 0 || row[i] > row[static_cast<size_t>(best)]) best = id;
  }
  return best;
}

double clear_margin(const GoldenTensor* logits, const VerifyTolerance& tolerance) {
  return 2.0 * tolerance.max * (logits == nullptr ? 0.0 : logits->max_abs());
}

}  // namespace tern::model
