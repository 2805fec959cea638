#include "serve/control/ask.h"

#include <fmt/format.h>

#include "serve/http/target.h"
#include "serve/openai/json/fields.h"

namespace tern::serve::control {
namespace {

constexpr size_t kMostPath = 4096, kMostVersion = 256;

Error invalid(std::string message, const char* param) {
  return make_error(ErrorCode::kInvalidArgument, std::move(message), param);
}

}  // namespace

Status read_tags(std::string_view query, Ask& ask) {
  uint8_t all = 0;
  while (!query.empty()) {
    const size_t end = query.find('&');
    const std::string_view pair = query.substr(0, end);
    query = end == std::string_view::npos ? std::string_view() : query.substr(end + 1);
    if (!pair.starts_with("tags=")) continue;
    std::string text;
    uint8_t tags = 0;
    if (!http::decode_name(pair.substr(5), text) || !parse_tags(text, tags)) {
      return invalid("tags are weight and kv_cache, with a comma between", "tags");
    }
    all |= tags;
  }
  if (all != 0) ask.tags = all;
  return {};
}

Status read_update(const json::Value& body, Ask& ask) {
  if (!body.is_object()) return invalid("Input should be a valid dictionary", "body");
  openai::Fields f(body.get_object());
  f.string("version", ask.version, kMostVersion);
  f.boolean("verify_checksum", ask.from.verify);
  f.string("model_path", ask.from.path, kMostPath);
  if (!f.ok()) return f.take_error();
  ask.from.folder = ask.from.path.empty() ? WeightsFrom::Folder::kOwn : WeightsFrom::Folder::kNamed;
  if (ask.from.path.find('\0') != std::string::npos) return invalid("model_path holds a zero byte", "model_path");
  return {};
}

}  // namespace tern::serve::control
