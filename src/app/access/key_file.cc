#include "app/access/key_file.h"

#include <fmt/format.h>

#include <algorithm>

#include "app/access/secret_file.h"

namespace tern::app {
namespace {

constexpr const char* kFlag = "api-key-file";

bool blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }
bool part_of_key(char c) { return c > 0x20 && c < 0x7f; }

// The line's text without white space around it and without its comment.
std::string_view content_of(std::string_view line) {
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '#' && (i == 0 || blank(line[i - 1]))) line = line.substr(0, i);
  }
  while (!line.empty() && blank(line.front())) line.remove_prefix(1);
  while (!line.empty() && blank(line.back())) line.remove_suffix(1);
  return line;
}

}  // namespace

Expected<std::vector<std::string>> parse_keys(std::string_view text) {
  std::vector<std::string> keys;
  for (size_t number = 1; !text.empty(); ++number) {
    const auto wrong = [number](std::string_view why) {
      return make_error(ErrorCode::kInvalidArgument, fmt::format("line {}: {}", number, why), kFlag);
    };
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view key = content_of(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (key.empty()) continue;
    if (!std::ranges::all_of(key, part_of_key)) {
      return wrong("a key has printable ASCII characters alone, and no white space");
    }
    if (key.size() > kLongestKey) return wrong(fmt::format("a key has at most {} bytes", kLongestKey));
    if (keys.size() == kMostKeys) return wrong(fmt::format("a file has at most {} keys", kMostKeys));
    keys.emplace_back(key);
  }
  // A server without keys is open: an empty file must not make it so.
  if (keys.empty()) return make_error(ErrorCode::kInvalidArgument, "it holds no key", kFlag);
  return keys;
}

Expected<KeyFile> read_key_file(const std::string& path) {
  TERN_ASSIGN_OR_RETURN(const SecretFile file, read_secret_file(path, kFlag));
  auto keys = parse_keys(file.text);
  if (!keys.ok()) {
    return make_error(keys.error().code, fmt::format("--{} {}: {}", kFlag, path, keys.error().message), kFlag);
  }
  KeyFile out{std::move(*keys), {}};
  if (file.open_to_others()) out.warning = open_file_warning(path, kFlag, file.mode);
  return out;
}

}  // namespace tern::app
