#include "serve/anthropic/blocks.h"

#include <fmt/format.h>

#include "serve/core/invalid.h"

namespace tern::serve::anthropic {
namespace {

using prepare::Conversation;

Expected<std::string> need_text(const json::Object& object, std::string_view key, const std::string& where) {
  const json::Value* value = json::find(object, key);
  const std::string param = fmt::format("{}.{}", where, key);
  if (value == nullptr) return invalid_value(param + ": Field required", param);
  if (!value->is_string()) return invalid_value(param + ": Input should be a valid string", param);
  return std::string(value->get_string());
}

Error unusable(std::string_view type, const std::string& where) {
  return invalid_value(fmt::format("{}: a block of type {} cannot be used here", where, type.substr(0, 64)), where);
}

std::string type_of(const json::Object& block) {
  const json::Value* type = json::find(block, "type");
  return type != nullptr && type->is_string() ? std::string(type->get_string()) : std::string();
}

// The source of a picture as a URL of a chat's part.
Expected<json::Value> picture_url(json::Object& block, const std::string& where) {
  json::Value* source = block.if_contains("source");
  if (source == nullptr || !source->is_object()) {
    return invalid_value(fmt::format("{}.source: Field required", where), where + ".source");
  }
  json::Object& object = source->get_object();
  const std::string type = type_of(object), place = where + ".source";
  if (type == "url") {
    TERN_ASSIGN_OR_RETURN(const std::string url, need_text(object, "url", place));
    return json::Value(url);
  }
  if (type != "base64") {
    return invalid_value(fmt::format("{}.type: Input should be 'base64' or 'url'", place), place + ".type");
  }
  TERN_ASSIGN_OR_RETURN(const std::string media_type, need_text(object, "media_type", place));
  TERN_ASSIGN_OR_RETURN(const std::string data, need_text(object, "data", place));
  return json::Value(fmt::format("data:{};base64,{}", media_type, data));
}

Expected<json::Value> take_part(json::Object& block, const std::string& type, const std::string& where) {
  if (type == "text") {
    TERN_ASSIGN_OR_RETURN(const std::string text, need_text(block, "text", where));
    return json::Value(json::Object{{"type", "text"}, {"text", text}});
  }
  if (type != "image") return unusable(type, where);
  TERN_ASSIGN_OR_RETURN(auto url, picture_url(block, where));
  json::Object inner;
  inner["url"] = std::move(url);
  return json::Value(json::Object{{"type", "image_url"}, {"image_url", std::move(inner)}, {"place", where}});
}

// Calls `take` for each block of a list, with its type and place.
template <typename Take>
Status each_block(json::Value& list, const std::string& where, Take&& take) {
  if (!list.is_array()) return invalid_value(where + ": Input should be a valid string or list", where);
  json::Array& blocks = list.get_array();
  for (size_t i = 0; i < blocks.size(); ++i) {
    const std::string place = fmt::format("{}[{}]", where, i);
    if (!blocks[i].is_object()) return invalid_value(place + ": Input should be a valid dictionary", place);
    TERN_RETURN_IF_ERROR(take(blocks[i].get_object(), type_of(blocks[i].get_object()), place));
  }
  return {};
}

Status take_result(json::Object& block, const std::string& where, Conversation& conversation) {
  TERN_ASSIGN_OR_RETURN(const std::string id, need_text(block, "tool_use_id", where));
  json::Value* content = block.if_contains("content");
  if (content == nullptr || content->is_null()) {
    conversation.result(id, "");
    return {};
  }
  if (content->is_string()) {
    conversation.result(id, std::move(*content));
    return {};
  }
  json::Array parts;
  TERN_RETURN_IF_ERROR(each_block(*content, where + ".content",
                                  [&](json::Object& part, const std::string& type, const std::string& place) -> Status {
                                    TERN_ASSIGN_OR_RETURN(auto made, take_part(part, type, place));
                                    parts.push_back(std::move(made));
                                    return {};
                                  }));
  conversation.result(id, std::move(parts));
  return {};
}

// Results of calls come first, since they answer the assistant's message; the rest is what the user says.
Status take_user(json::Value& content, const std::string& where, Conversation& conversation) {
  json::Array parts;
  TERN_RETURN_IF_ERROR(
      each_block(content, where, [&](json::Object& block, const std::string& type, const std::string& place) -> Status {
        if (type == "tool_result") return take_result(block, place, conversation);
        TERN_ASSIGN_OR_RETURN(auto made, take_part(block, type, place));
        parts.push_back(std::move(made));
        return {};
      }));
  if (!parts.empty()) conversation.user(std::move(parts));
  return {};
}

Status take_call(const json::Object& block, const std::string& where, Conversation& conversation) {
  TERN_ASSIGN_OR_RETURN(const std::string id, need_text(block, "id", where));
  TERN_ASSIGN_OR_RETURN(const std::string name, need_text(block, "name", where));
  const json::Value* input = json::find(block, "input");
  if (input == nullptr || !input->is_object()) {
    return invalid_value(where + ".input: Input should be a valid dictionary", where + ".input");
  }
  conversation.call(id, name, json::dump(*input));
  return {};
}

Status take_assistant(json::Value& content, const std::string& where, Conversation& conversation) {
  std::string said;
  bool any = false;
  const auto say = [&] {
    if (any) conversation.text(said);
    said.clear();
    any = false;
  };
  TERN_RETURN_IF_ERROR(
      each_block(content, where, [&](json::Object& block, const std::string& type, const std::string& place) -> Status {
        if (type == "text") {
          TERN_ASSIGN_OR_RETURN(const std::string text, need_text(block, "text", place));
          if (any) said += '\n';
          said += text;
          any = true;
          return {};
        }
        say();
        if (type == "tool_use") return take_call(block, place, conversation);
        if (type != "thinking") return unusable(type, place);
        TERN_ASSIGN_OR_RETURN(const std::string thoughts, need_text(block, "thinking", place));
        conversation.reasoning(thoughts);
        return {};
      }));
  say();
  return {};
}

}  // namespace

Status read_system(const json::Value& system, Conversation& conversation) {
  if (system.is_string()) {
    if (!system.get_string().empty()) conversation.system(system.get_string());
    return {};
  }
  json::Value list = system;
  return each_block(list, "system",
                    [&](json::Object& block, const std::string& type, const std::string& place) -> Status {
                      if (type != "text") return unusable(type, place);
                      TERN_ASSIGN_OR_RETURN(const std::string text, need_text(block, "text", place));
                      conversation.system(text);
                      return {};
                    });
}

Status read_messages(json::Array& messages, Conversation& conversation) {
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::string where = fmt::format("messages[{}]", i);
    if (!messages[i].is_object()) return invalid_value(where + ": Input should be a valid dictionary", where);
    json::Object& message = messages[i].get_object();
    TERN_ASSIGN_OR_RETURN(const std::string role, need_text(message, "role", where));
    if (role != "user" && role != "assistant") {
      return invalid_value(where + ".role: Input should be 'user' or 'assistant'", where + ".role");
    }
    const bool user = role == "user";
    json::Value* content = message.if_contains("content");
    const std::string place = where + ".content";
    if (content == nullptr || content->is_null()) return invalid_value(place + ": Field required", place);
    if (content->is_string()) {
      if (user)
        conversation.user(std::move(*content));
      else
        conversation.text(content->get_string());
      continue;
    }
    TERN_RETURN_IF_ERROR(user ? take_user(*content, place, conversation)
                              : take_assistant(*content, place, conversation));
  }
  return {};
}

}  // namespace tern::serve::anthropic
