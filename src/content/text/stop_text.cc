#include "content/text/stop_text.h"

#include <algorithm>
#include <utility>

namespace tern::content {
namespace {

std::vector<uint32_t> borders(const std::string& text) {
  std::vector<uint32_t> border(text.size() + 1, 0);
  size_t k = 0;
  for (size_t i = 1; i < text.size(); ++i) {
    while (k > 0 && text[i] != text[k]) k = border[k];
    if (text[i] == text[k]) ++k;
    border[i + 1] = static_cast<uint32_t>(k);
  }
  return border;
}

}  // namespace

StopMatcher::StopMatcher(std::vector<std::string> stops, bool include_stop) : include_stop_(include_stop) {
  for (size_t i = 0; i < stops.size(); ++i) {
    if (stops[i].empty()) continue;
    Pattern p;
    p.border = borders(stops[i]);
    p.text = std::move(stops[i]);
    p.index = static_cast<int>(i);
    patterns_.push_back(std::move(p));
  }
}

StopMatcher::Result StopMatcher::push(std::string_view text) {
  Result result;
  if (stopped_) return result;
  if (patterns_.empty()) {
    result.text.assign(text);
    return result;
  }
  for (size_t i = 0; i < text.size(); ++i) {
    const Pattern* hit = nullptr;
    for (Pattern& p : patterns_) {
      while (p.matched > 0 && text[i] != p.text[p.matched]) p.matched = p.border[p.matched];
      if (text[i] == p.text[p.matched]) ++p.matched;
      if (p.matched < p.text.size()) continue;
      if (!hit || p.text.size() > hit->text.size()) hit = &p;
      p.matched = p.border[p.matched];
    }
    if (!hit) continue;
    result.text = std::move(held_);
    result.text.append(text.substr(0, i + 1));
    if (!include_stop_) result.text.resize(result.text.size() - hit->text.size());
    result.stopped = true;
    result.stop_index = hit->index;
    stopped_ = true;
    held_.clear();
    return result;
  }
  size_t keep = 0;
  for (const Pattern& p : patterns_) keep = std::max(keep, p.matched);
  held_.append(text);
  result.text = held_.substr(0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
  return result;
}

std::string StopMatcher::finish() {
  for (Pattern& p : patterns_) p.matched = 0;
  return std::exchange(held_, {});
}

}  // namespace tern::content
