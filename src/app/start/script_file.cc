#include "app/start/script_file.h"

#include <fmt/format.h>

#include <fstream>
#include <iterator>

#include "json/json.h"

namespace tern::app {
namespace {

constexpr size_t kMaxFileBytes = 64u << 20, kMaxLineBytes = 8u << 20, kMaxAnswers = 100'000;
constexpr double kMaxDelayMs = 3.6e6;

Error wrong(std::string message) { return make_error(ErrorCode::kInvalidArgument, std::move(message)); }

Expected<engine::ScriptedAnswer> parse_line(std::string_view line, const content::Tokenizer& tokenizer) {
  TERN_ASSIGN_OR_RETURN(const json::Value value, json::parse(line, {.max_bytes = kMaxLineBytes, .max_depth = 4}));
  if (!value.is_object()) return wrong("a JSON object is needed");
  const json::Object& object = value.get_object();
  for (const auto& [key, member] : object) {
    if (key != "match" && key != "text" && key != "token_delay_ms" && key != "stop") {
      return wrong(fmt::format("\"{}\" is none of match, text, token_delay_ms and stop", std::string_view(key)));
    }
  }
  engine::ScriptedAnswer answer;
  TERN_ASSIGN_OR_RETURN(const auto match, json::get_string(object, "match"));
  TERN_ASSIGN_OR_RETURN(const auto text, json::get_string(object, "text"));
  TERN_ASSIGN_OR_RETURN(const auto delay, json::get_double(object, "token_delay_ms"));
  TERN_ASSIGN_OR_RETURN(const auto stop, json::get_string(object, "stop"));
  if (!text) return wrong("\"text\" is missing");
  if (delay && !(*delay >= 0 && *delay <= kMaxDelayMs)) {
    return wrong(fmt::format("\"token_delay_ms\" is not between 0 and {}", kMaxDelayMs));
  }
  if (stop && *stop != "natural" && *stop != "length") {
    return wrong(fmt::format("\"stop\" is \"{}\", but only natural and length are known", *stop));
  }
  answer.match = match.value_or("");
  answer.token_delay_ns = static_cast<int64_t>(delay.value_or(0) * 1e6);
  answer.natural = stop.value_or("natural") == "natural";
  TERN_ASSIGN_OR_RETURN(answer.ids, tokenizer.encode(*text, false));
  if (answer.ids.empty() && !answer.natural) return wrong("an answer that ends by its length needs a text");
  return answer;
}

}  // namespace

Expected<std::vector<engine::ScriptedAnswer>> parse_script(std::string_view text, const std::string& name,
                                                           const content::Tokenizer& tokenizer) {
  std::vector<engine::ScriptedAnswer> script;
  size_t number = 0;
  while (!text.empty()) {
    ++number;
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    auto answer = parse_line(line, tokenizer);
    if (!answer.ok()) return wrong(fmt::format("{}, line {}: {}", name, number, answer.error().message));
    if (script.size() == kMaxAnswers) return wrong(fmt::format("{}: more than {} answers", name, kMaxAnswers));
    script.push_back(*std::move(answer));
  }
  if (script.empty()) return wrong(fmt::format("{}: no answers", name));
  return script;
}

Expected<std::vector<engine::ScriptedAnswer>> read_script(const std::string& path,
                                                          const content::Tokenizer& tokenizer) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return make_error(ErrorCode::kIo, fmt::format("--scripted: cannot read {}", path), "scripted");
  std::string text(std::istreambuf_iterator<char>(file), {});
  if (text.size() > kMaxFileBytes) {
    return make_error(ErrorCode::kTooLarge, fmt::format("--scripted: {} has more than {} bytes", path, kMaxFileBytes),
                      "scripted");
  }
  auto script = parse_script(text, path, tokenizer);
  if (script.ok()) return script;
  Error error = std::move(script).error();
  error.message = "--scripted: " + error.message;
  return error;
}

}  // namespace tern::app
