#include "engine/graph_shapes.h"

#include <fmt/format.h>

#include <algorithm>

namespace tern::engine {
namespace {

constexpr int kMostSequences = 512;  // of the automatic list
constexpr size_t kMostSizes = 1000;

Status check(const std::vector<int>& sizes, const char* key) {
  if (sizes.size() > kMostSizes || std::any_of(sizes.begin(), sizes.end(), [](int n) { return n < 1; })) {
    return make_error(
        ErrorCode::kInvalidArgument,
        fmt::format("--graph-optimization-config: {} must be at most {} numbers of 1 or more", key, kMostSizes),
        "graph-optimization-config");
  }
  return {};
}

// Ascending, each once, none above `most`.
std::vector<int> tidy(std::vector<int> sizes, int most) {
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  sizes.erase(std::upper_bound(sizes.begin(), sizes.end(), most), sizes.end());
  return sizes;
}

// Few tokens cost what reading the weights costs; from some 200 on every one of them counts.
std::vector<int> automatic_tokens(int most) {
  std::vector<int> sizes;
  for (int n = 16; n <= most; n += n < 64 ? 16 : 32) sizes.push_back(n);
  if (most > 0 && (sizes.empty() || sizes.back() < most)) sizes.push_back(most);
  return sizes;
}

// Rows without tokens cost next to nothing but for their logits.
std::vector<int> mixed_rows(int tokens, int most) {
  std::vector<int> rows;
  for (int n = 4; n < std::min(tokens, most); n *= 4) rows.push_back(n);
  rows.push_back(std::min(tokens, most));
  return rows;
}

}  // namespace

std::vector<int> automatic_sizes(int most) {
  std::vector<int> sizes = {1, 2, 4};
  for (int i = 1; i <= 16; ++i) sizes.push_back(8 * i);
  for (int i = 9; i <= 16; ++i) sizes.push_back(16 * i);
  for (int i = 17; i <= 32; ++i) sizes.push_back(32 * i);
  most = std::min(most, kMostSequences);
  if (most > 0) sizes.push_back(most);
  return tidy(std::move(sizes), most);
}

Expected<GraphShapes> GraphShapes::make(const GraphConfig& config, const model::BatchLimits& limits) {
  GraphShapes s;
  if (!config.use) return s;
  TERN_RETURN_IF_ERROR(check(config.sizes, "cudagraph_capture_sizes"));
  TERN_RETURN_IF_ERROR(check(config.prefill_sizes, "cudagraph_capture_sizes_prefill"));
  const int rows = std::min(limits.max_rows, limits.max_logit_rows);
  s.samples_ = tidy(config.sizes.empty() ? automatic_sizes(rows) : config.sizes, rows);
  if (!config.only_prefill) {
    for (const int n : s.samples_) {
      if (n <= limits.max_tokens) s.shapes_.push_back({n, n, true});
    }
  }
  const int tokens = std::min(config.max_prefill, limits.max_tokens);
  for (const int n : tidy(config.prefill_sizes.empty() ? automatic_tokens(tokens) : config.prefill_sizes, tokens)) {
    for (const int r : mixed_rows(n, rows)) s.shapes_.push_back({n, r, false});
  }
  return s;
}

int GraphShapes::find(const model::Batch& b) const {
  const bool decode = b.max_query_len <= 1;
  for (size_t i = 0; i < shapes_.size(); ++i) {
    const StepShape& s = shapes_[i];
    if (s.decode == decode && s.tokens >= b.tokens && s.rows >= b.rows && s.rows >= b.logit_rows) {
      return static_cast<int>(i);
    }
  }
  return -1;
}

int GraphShapes::most_tokens() const {
  int most = 0;
  for (const StepShape& s : shapes_) most = std::max(most, s.tokens);
  return most;
}

int GraphShapes::find_samples(int count) const {
  const auto it = std::lower_bound(samples_.begin(), samples_.end(), count);
  return it == samples_.end() ? -1 : static_cast<int>(it - samples_.begin());
}

}  // namespace tern::engine
