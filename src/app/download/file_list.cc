#include "app/download/file_list.h"

#include <algorithm>
#include <unordered_set>

#include <fmt/format.h>

#include "app/plain_path.h"

namespace tern::app {
namespace {

constexpr size_t kMostFiles = 100'000;

bool is_sum(std::string_view text) {
  return text.size() == 32 && std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isxdigit(c); });
}

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r"), end = text.find_last_not_of(" \t\r");
  return begin == std::string_view::npos ? std::string_view() : text.substr(begin, end - begin + 1);
}

}  // namespace

Expected<std::vector<ListedFile>> parse_file_list(std::string_view text) {
  std::vector<ListedFile> files;
  std::unordered_set<std::string> known;
  for (size_t number = 1; !text.empty(); ++number) {
    const size_t end = text.find('\n');
    const std::string_view line = trimmed(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.empty()) continue;
    const size_t colon = line.rfind(':');
    const std::string_view path = trimmed(line.substr(0, colon));
    const std::string_view sum = colon == std::string_view::npos ? "" : trimmed(line.substr(colon + 1));
    const auto wrong = [&](std::string_view what) {
      return make_error(ErrorCode::kCorrupt, fmt::format("line {} of the file list {}", number, what));
    };
    if (!is_sum(sum)) return wrong("has no MD5 sum behind its last colon");
    if (!is_plain_path(path)) return wrong("names a path that is not below the model's folder");
    if (!known.emplace(path).second) return wrong("names a path a second time");
    if (files.size() >= kMostFiles) return wrong(fmt::format("is beyond the {} files of a model", kMostFiles));
    ListedFile file{std::string(path), std::string(sum)};
    std::transform(file.md5.begin(), file.md5.end(), file.md5.begin(), [](unsigned char c) { return std::tolower(c); });
    files.push_back(std::move(file));
  }
  if (files.empty()) return make_error(ErrorCode::kCorrupt, "the file list is empty");
  return files;
}

// .*Qwen.*, .+Llama.+, .+Mixtral.+, .+DeepSeek.+
Status check_model_name(const std::string& name) {
  bool known = name.find("Qwen") != std::string::npos;
  for (const std::string_view family : {"Llama", "Mixtral", "DeepSeek"}) {
    for (size_t at = name.find(family, 1); at != std::string::npos && !known; at = name.find(family, at + 1)) {
      known = at + family.size() < name.size();
    }
  }
  if (!known) {
    return make_error(ErrorCode::kInvalidArgument,
                      fmt::format("{} is not in the supported list. Currently supported models: Qwen, Llama, Mixtral, "
                                  "DeepSeek.",
                                  name),
                      "model_name");
  }
  if (!is_plain_path(name)) {
    return make_error(ErrorCode::kInvalidArgument, fmt::format("{} is no plain relative path", name), "model_name");
  }
  return {};
}

}  // namespace tern::app
