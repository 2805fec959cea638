#include "model/verify/checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

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

namespace {

// Whether `chosen` is ahead of `other` by no more than two logits may be off.
bool undecided(std::span<const float> row, int32_t chosen, int32_t other, const VerifyTolerance& tolerance) {
  if (chosen < 0 || other < 0) return false;
  double most = 0.0;
  for (const float x : row) most = std::max(most, std::fabs(static_cast<double>(x)));
  return static_cast<double>(row[static_cast<size_t>(chosen)]) - static_cast<double>(row[static_cast<size_t>(other)]) <=
         2.0 * tolerance.max * most;
}

}  // namespace

bool agree(std::span<const float> a, std::span<const float> b, Agreement how, const VerifyTolerance& tolerance,
           const std::vector<int32_t>& banned, std::string& detail, double scale) {
  bool ok = a.size() == b.size();
  if (how == Agreement::kBits) {
    ok = ok && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
    detail = ok ? "bit-equal logits" : "logits differ";
  } else if (how == Agreement::kToken) {
    const int32_t first = arg_max(a, banned), second = arg_max(b, banned);
    const bool same = ok && first == second;
    ok = same || (ok && undecided(a, first, second, tolerance) && undecided(b, second, first, tolerance));
    detail = same ? "same token" : ok ? "another token, as near as the tolerance" : "another token";
  } else {
    const GoldenTensor want{{static_cast<int64_t>(a.size())}, {a.begin(), a.end()}};
    const TensorCheck c = compare_tensor("", want, b, tolerance);
    const double share = scale > want.max_abs() ? want.max_abs() / scale : 1.0;
    ok = c.ok || (ok && share < 1.0 && c.relative * share <= tolerance.max && c.rms * share <= tolerance.rms);
    detail = fmt::format("off by {:.1e}", c.relative * share);
  }
  return ok;
}

}  // namespace tern::model
