#include "app/plain_path.h"

#include <algorithm>

namespace tern::app {

bool is_plain_path(std::string_view path) {
  constexpr size_t kMostBytes = 1024;
  if (path.empty() || path.size() > kMostBytes) return false;
  while (true) {
    const size_t slash = path.find('/');
    const std::string_view part = path.substr(0, slash);
    if (part.empty() || part == "." || part == "..") return false;
    if (std::any_of(part.begin(), part.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f || c == '\\'; })) {
      return false;
    }
    if (slash == std::string_view::npos) return true;
    path.remove_prefix(slash + 1);
  }
}

}  // namespace tern::app
