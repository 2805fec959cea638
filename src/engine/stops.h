// When an answer ends by what it says (fastdeploy.md 5.6, 3.7).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tern::engine {

struct StopRules {
  std::span<const int32_t> ids;  // end-of-text ids (none with ignore_eos) and stop ids
  std::span<const std::vector<int32_t>> sequences;
};

struct StopHit {
  int32_t token = -1;     // the end-of-text or stop id
  int32_t sequence = -1;  // index of the stop sequence
  bool found() const { return token >= 0 || sequence >= 0; }
};

// Looks at the end of `output` only: called after every token. Nothing stops an answer shorter than `min_tokens`.
inline StopHit find_stop(const StopRules& rules, std::span<const int32_t> output, int min_tokens) {
  StopHit hit;
  if (output.empty() || output.size() < static_cast<size_t>(min_tokens)) return hit;
  const int32_t last = output.back();
  for (int32_t id : rules.ids) {
    if (id == last) {
      hit.token = id;
      return hit;
    }
  }
  for (size_t i = 0; i < rules.sequences.size(); ++i) {
    const std::vector<int32_t>& s = rules.sequences[i];
    if (s.empty() || s.size() > output.size()) continue;
    const auto tail = output.last(s.size());
    bool same = true;
    for (size_t k = 0; k < s.size() && same; ++k) same = tail[k] == s[k];
    if (same) {
      hit.sequence = static_cast<int32_t>(i);
      return hit;
    }
  }
  return hit;
}

}  // namespace tern::engine
