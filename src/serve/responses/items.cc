#include "serve/responses/items.h"

#include <fmt/format.h>

#include "serve/core/invalid.h"

namespace tern::serve::responses {
namespace {

using prepare::Conversation;

std::string_view text_under(const json::Object& object, std::string_view key) {
  const json::Value* value = json::find(object, key);
  return value != nullptr && value->is_string() ? std::string_view(value->get_string()) : std::string_view();
}

Expected<std::string_view> need_text(const json::Object& object, std::string_view key, const std::string& where) {
  const json::Value* value = json::find(object, key);
  const std::string param = fmt::format("{}.{}", where, key);
  if (value == nullptr) return invalid_value("Field required", param);
  if (!value->is_string()) return invalid_value("Input should be a valid string", param);
  return std::string_view(value->get_string());
}

bool is_text_part(std::string_view type) {
  return type == "input_text" || type == "output_text" || type == "text" || type == "reasoning_text" ||
         type == "summary_text";
}

// One part of a message or of a call's output, as a chat has it.
Status take_part(json::Value& value, const std::string& where, json::Array& parts) {
  if (!value.is_object()) return invalid_value("Input should be a valid dictionary", where);
  json::Object& part = value.get_object();
  const std::string type(text_under(part, "type"));
  if (is_text_part(type)) {
    TERN_ASSIGN_OR_RETURN(const std::string_view text, need_text(part, "text", where));
    parts.push_back(json::Object{{"type", "text"}, {"text", text}});
    return {};
  }
  if (type == "refusal") {
    TERN_ASSIGN_OR_RETURN(const std::string_view text, need_text(part, "refusal", where));
    parts.push_back(json::Object{{"type", "text"}, {"text", text}});
    return {};
  }
  if (type == "input_image") {
    if (json::find(part, "image_url") == nullptr) {
      return invalid_value("input_image needs image_url: this server keeps no files", where + ".image_url");
    }
    TERN_RETURN_IF_ERROR(need_text(part, "image_url", where));
    json::Object url{{"url", std::move(part["image_url"])}};
    parts.push_back(json::Object{{"type", "image_url"}, {"image_url", std::move(url)}, {"place", where}});
    return {};
  }
  return invalid_value(fmt::format("a content part of type {} cannot be used here", type.substr(0, 64)),
                       where + ".type");
}

// A string or a list of parts.
Expected<json::Value> take_content(json::Object& item, std::string_view key, const std::string& where) {
  json::Value* content = item.if_contains(key);
  const std::string param = fmt::format("{}.{}", where, key);
  if (content == nullptr || content->is_null()) return invalid_value("Field required", param);
  if (content->is_string()) return std::move(*content);
  if (!content->is_array()) return invalid_value("Input should be a valid string or list", param);
  json::Array parts;
  json::Array& list = content->get_array();
  for (size_t i = 0; i < list.size(); ++i) {
    TERN_RETURN_IF_ERROR(take_part(list[i], fmt::format("{}[{}]", param, i), parts));
  }
  return json::Value(std::move(parts));
}

// Its texts, one after the other; nothing else may be there.
Expected<std::string> take_texts(json::Object& item, std::string_view key, const std::string& where) {
  TERN_ASSIGN_OR_RETURN(const json::Value content, take_content(item, key, where));
  if (content.is_string()) return std::string(content.get_string());
  std::string text;
  for (const json::Value& part : content.get_array()) {
    if (part.at("type") != "text") {
      return invalid_value("only texts can stand here", fmt::format("{}.{}", where, key));
    }
    if (!text.empty()) text += '\n';
    text += std::string_view(part.at("text").get_string());
  }
  return text;
}

Status take_message(json::Object& item, const std::string& where, Conversation& conversation) {
  TERN_ASSIGN_OR_RETURN(const std::string_view role, need_text(item, "role", where));
  if (role == "user") {
    TERN_ASSIGN_OR_RETURN(auto content, take_content(item, "content", where));
    conversation.user(std::move(content));
    return {};
  }
  if (role != "assistant" && role != "system" && role != "developer") {
    return invalid_value("Input should be 'user', 'assistant', 'system' or 'developer'", where + ".role");
  }
  const bool assistant = role == "assistant";
  TERN_ASSIGN_OR_RETURN(const std::string text, take_texts(item, "content", where));
  assistant ? conversation.text(text) : conversation.system(text);
  return {};
}

// The thoughts themselves where the item has them, else their summary.
Status take_reasoning(json::Object& item, const std::string& where, Conversation& conversation) {
  for (const std::string_view key : {"content", "summary"}) {
    if (json::find(item, key) == nullptr) continue;
    TERN_ASSIGN_OR_RETURN(const std::string text, take_texts(item, key, where));
    if (text.empty()) continue;
    conversation.reasoning(text);
    break;
  }
  return {};
}

Status take_item(json::Value& value, const std::string& where, Conversation& conversation) {
  if (!value.is_object()) return invalid_value("Input should be a valid dictionary", where);
  json::Object& item = value.get_object();
  std::string type(text_under(item, "type"));
  if (json::find(item, "type") == nullptr) type = "message";  // the short form: role and content
  if (type == "message") return take_message(item, where, conversation);
  if (type == "reasoning") return take_reasoning(item, where, conversation);
  if (type == "function_call") {
    TERN_ASSIGN_OR_RETURN(const auto id, need_text(item, "call_id", where));
    TERN_ASSIGN_OR_RETURN(const auto name, need_text(item, "name", where));
    TERN_ASSIGN_OR_RETURN(const auto arguments, need_text(item, "arguments", where));
    conversation.call(id, name, arguments);
    return {};
  }
  if (type == "function_call_output") {
    TERN_ASSIGN_OR_RETURN(const auto id, need_text(item, "call_id", where));
    const std::string call(id);
    TERN_ASSIGN_OR_RETURN(auto output, take_content(item, "output", where));
    conversation.result(call, std::move(output));
    return {};
  }
  if (type == "item_reference") {
    return invalid_value(
        "item_reference names what a server has kept, and this one keeps nothing: send the item itself",
        where + ".type");
  }
  return invalid_value(fmt::format("an item of type {} cannot be used here", type.substr(0, 64)), where + ".type");
}

}  // namespace

Status read_input(json::Value& input, Conversation& conversation) {
  if (input.is_string()) {
    conversation.user(std::move(input));
    return {};
  }
  if (!input.is_array()) return invalid_value("Input should be a valid string or list", "input");
  json::Array& items = input.get_array();
  if (items.empty()) return invalid_value("List should have at least 1 item", "input");
  for (size_t i = 0; i < items.size(); ++i) {
    TERN_RETURN_IF_ERROR(take_item(items[i], fmt::format("input[{}]", i), conversation));
  }
  return {};
}

}  // namespace tern::serve::responses
