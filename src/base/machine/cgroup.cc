#include "base/machine/cgroup.h"

#include <charconv>
#include <fstream>

namespace tern {
namespace {

// Where this process stands in a hierarchy: `controller` empty asks for version 2.
std::optional<std::string> group_path(const std::string& root, std::string_view controller) {
  std::ifstream in(root + "/proc/self/cgroup");
  std::string line;
  while (std::getline(in, line)) {
    const size_t a = line.find(':');
    const size_t b = a == std::string::npos ? a : line.find(':', a + 1);
    if (b == std::string::npos) continue;
    std::string names = ",", wanted = ",";
    names.append(line, a + 1, b - a - 1).append(",");
    wanted.append(controller).append(",");
    if (controller.empty() ? names == ",," : names.find(wanted) != std::string::npos) return line.substr(b + 1);
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> read_first_line(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  if (!in || !std::getline(in, line)) return std::nullopt;
  return line;
}

std::optional<uint64_t> parse_number(std::string_view text) {
  uint64_t v = 0;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), v);
  if (ec != std::errc() || end == text.data()) return std::nullopt;
  return v;
}

std::optional<uint64_t> read_number(const std::string& path) {
  const auto line = read_first_line(path);
  return line ? parse_number(*line) : std::nullopt;
}

void for_each_cgroup(const std::string& root, std::string_view controller,
                     const std::function<void(const std::string& folder)>& visit) {
  auto path = group_path(root, controller);
  if (!path) return;
  std::string mount = root + "/sys/fs/cgroup";
  if (!controller.empty()) mount.append("/").append(controller);
  while (!path->empty() && *path != "/") {
    visit(mount + *path);
    const size_t slash = path->rfind('/');
    path->resize(slash == std::string::npos ? 0 : slash);
  }
  visit(mount);
}

}  // namespace tern
