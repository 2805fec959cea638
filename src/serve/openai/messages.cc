#include <fmt/format.h>

#include "serve/openai/ask.h"
#include "serve/openai/error.h"

namespace tern::serve::openai {
namespace {

// The text of a content list; parts that are no text need a model with eyes.
Expected<std::string> join_parts(const json::Array& parts) {
  std::string text;
  bool first = true;
  for (const auto& part : parts) {
    if (!part.is_object()) return invalid_value("Input should be a valid dictionary", "content");
    const json::Value* type = json::find(part.get_object(), "type");
    const std::string_view name = type != nullptr && type->is_string() ? std::string_view(type->get_string()) : "";
    if (name == "image_url" || name == "video_url" || name == "audio_url" || name == "input_audio" || name == "image" ||
        name == "video") {
      return make_error(ErrorCode::kInvalidArgument,
                        fmt::format("this model takes text only: a content part of type {} cannot be used", name),
                        "content");
    }
    if (name != "text") {
      return invalid_value(fmt::format("Unknown content part type: {}", name.substr(0, 64)), "content");
    }
    const json::Value* piece = json::find(part.get_object(), "text");
    if (piece == nullptr || !piece->is_string()) return invalid_value("Input should be a valid string", "text");
    if (!first) text += '\n';
    text += std::string_view(piece->get_string());
    first = false;
  }
  return text;
}

// Arguments given as JSON text become objects: templates print them with their own quoting.
void open_arguments(json::Object& message, size_t max_depth) {
  json::Value* calls = message.if_contains("tool_calls");
  if (calls == nullptr || !calls->is_array()) return;
  for (auto& call : calls->get_array()) {
    if (!call.is_object()) continue;
    json::Value* function = call.get_object().if_contains("function");
    if (function == nullptr || !function->is_object()) continue;
    json::Value* arguments = function->get_object().if_contains("arguments");
    if (arguments == nullptr || !arguments->is_string()) continue;
    json::Limits limits;
    limits.max_depth = max_depth;
    auto parsed = json::parse(std::string_view(arguments->get_string()), limits);
    if (parsed.ok() && parsed->is_object()) *arguments = *std::move(parsed);
  }
}

}  // namespace

Expected<json::Value> normalise_messages(const json::Array& messages, const ServeConfig& config) {
  if (messages.empty()) return invalid_value("List should have at least 1 item", "messages");
  if (messages.size() > static_cast<size_t>(config.limits.messages)) {
    return invalid_value(
        fmt::format("List should have at most {} items, not {}", config.limits.messages, messages.size()), "messages");
  }
  json::Array out;
  out.reserve(messages.size());
  for (const auto& item : messages) {
    if (!item.is_object()) return invalid_value("Input should be a valid dictionary", "messages");
    json::Object message = item.get_object();
    const json::Value* role = json::find(message, "role");
    if (role == nullptr) return invalid_value("Field required", "role");
    if (!role->is_string()) return invalid_value("Input should be a valid string", "role");
    json::Value* content = message.if_contains("content");
    if (content != nullptr && content->is_array()) {
      TERN_ASSIGN_OR_RETURN(auto text, join_parts(content->get_array()));
      *content = text;
    } else if (content != nullptr && !content->is_string() && !content->is_null()) {
      return invalid_value("Input should be a valid string", "content");
    }
    open_arguments(message, config.http.json_depth);
    out.push_back(std::move(message));
  }
  return json::Value(std::move(out));
}

}  // namespace tern::serve::openai
