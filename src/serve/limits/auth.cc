#include "serve/limits/auth.h"

#include <algorithm>

namespace tern::serve {

Auth::Auth(const std::vector<std::string>& keys, bool changing) : changing_(changing) { replace(keys); }

void Auth::replace(const std::vector<std::string>& keys) {
  const std::lock_guard lock(mutex_);
  const auto fresh = std::make_shared<Keys>();
  for (const std::string& key : keys) {
    if (key.empty()) continue;
    const Digest digest = sha256(key);
    const auto same = [&](const Key& known) { return equal_digests(known.digest, digest); };
    if (std::ranges::any_of(*fresh, same)) continue;  // given twice
    const auto old = std::ranges::find_if(*keys_, same);
    fresh->push_back({digest, old != keys_->end() ? old->number : next_number_++});
  }
  keys_ = fresh;
}

std::optional<int> Auth::check(std::string_view authorization) const {
  constexpr std::string_view kScheme = "bearer ";
  if (authorization.size() <= kScheme.size()) return std::nullopt;
  for (size_t i = 0; i < kScheme.size(); ++i) {
    if ((authorization[i] | 0x20) != (kScheme[i] | 0x20)) return std::nullopt;
  }
  authorization.remove_prefix(kScheme.size());
  while (!authorization.empty() && authorization.front() == ' ') authorization.remove_prefix(1);
  return check_key(authorization);
}

std::optional<int> Auth::check_key(std::string_view key) const {
  const Digest given = sha256(key);
  const auto keys = current();
  std::optional<int> found;
  for (const Key& known : *keys) {
    if (equal_digests(given, known.digest)) found = known.number;
  }
  return found;
}

bool Auth::holds(int number) const {
  const auto keys = current();
  return std::ranges::any_of(*keys, [&](const Key& key) { return key.number == number; });
}

}  // namespace tern::serve
