#include <utility>

#include "serve/prepare/template_form.h"

namespace tern::serve::prepare {
namespace {

json::Value text_list(std::string_view text) { return json::Array{json::Object{{"type", "text"}, {"text", text}}}; }

// A part of a type, with the key that some templates look for instead. It says nothing of where the picture comes from.
json::Object media_part(std::string_view type) {
  json::Object part{{"type", type}};
  if (type.ends_with("_url"))
    part[type] = json::Object{{"url", ""}};
  else
    part[type] = "";
  return part;
}

bool has_calls(const json::Object& message) {
  const json::Value* calls = json::find(message, "tool_calls");
  return calls != nullptr && calls->is_array() && !calls->get_array().empty();
}

bool wants_lists(std::string_view role, const TemplateForm& form) {
  if (role == "user") return form.user_lists;
  if (role == "system") return form.system_lists;
  return role == "assistant" && form.assistant_lists;
}

NoContent no_content(std::string_view role, bool calling, const TemplateForm& form) {
  if (role == "user") return form.user;
  if (role == "system") return form.system;
  if (role == "assistant") return calling ? form.calling : form.assistant;
  return form.tool;
}

void shape_list(json::Value& content, bool lists, const TemplateForm& form) {
  bool has_media = false;
  for (auto& part : content.get_array()) {
    const std::string type(part.get_object().at("type").get_string());
    if (type == "text") continue;
    has_media = true;
    const std::string& spelling = type == "image" ? form.image_type : form.video_type;
    part = media_part(spelling.empty() ? type : spelling);
  }
  if (!lists && !has_media) content = joined_text(content.get_array());
}

void shape_content(json::Object& message, const TemplateForm& form) {
  const json::Value* name = json::find(message, "role");
  const std::string role(name != nullptr && name->is_string() ? std::string_view(name->get_string()) : "");
  const bool lists = wants_lists(role, form);
  const bool calling = role == "assistant" && has_calls(message);
  json::Value* content = message.if_contains("content");
  if (calling && form.calls_need_null && content != nullptr &&
      ((content->is_string() && content->get_string().empty()) ||
       (content->is_array() && content->get_array().empty()))) {
    *content = nullptr;
  }
  if (content == nullptr || content->is_null()) {
    const NoContent want = no_content(role, calling, form);
    if (want == NoContent::kAbsent) {
      if (content != nullptr) message.stable_erase(message.find("content"));
    } else if (want == NoContent::kNull) {
      message["content"] = nullptr;
    } else {
      message["content"] = lists ? json::Value(json::Array{}) : json::Value("");
    }
  } else if (content->is_array()) {
    shape_list(*content, lists, form);
  } else if (content->is_string() && lists) {
    *content = text_list(std::string_view(content->get_string()));
  }
}

// As Python's json.dumps writes it: what a model was trained on when its template prints text.
void append_spaced(const json::Value& value, std::string& out) {
  if (const auto* list = value.if_array()) {
    out += '[';
    for (const auto& item : *list) {
      if (&item != &list->front()) out += ", ";
      append_spaced(item, out);
    }
    out += ']';
  } else if (const auto* map = value.if_object()) {
    out += '{';
    bool first = true;
    for (const auto& [key, item] : *map) {
      if (!std::exchange(first, false)) out += ", ";
      json::append_quoted(out, key);
      out += ": ";
      append_spaced(item, out);
    }
    out += '}';
  } else if (const auto* text = value.if_string()) {
    json::append_quoted(out, *text);
  } else if (const auto* number = value.if_double()) {
    json::append_double(out, *number);
  } else {
    out += json::dump(value);
  }
}

// Depth stays far below what the template's reader of variables takes (128 levels, the message's own among them).
constexpr size_t kArgumentsDepth = 96;

void open_text(json::Value& arguments, const TemplateForm& form) {
  const std::string_view text = arguments.get_string();
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) {
    arguments = json::Object{};
    return;
  }
  json::Limits limits;
  limits.max_depth = kArgumentsDepth;
  auto parsed = json::parse(text, limits);
  if (parsed.ok() && parsed->is_object()) {
    arguments = *std::move(parsed);
  } else if (!form.takes_any_text) {
    // Cut by max_tokens, or no object at all: what the model said is kept under one name.
    arguments = json::Object{{"arguments", text}};
  }
}

void shape_arguments(json::Object& function, const TemplateForm& form) {
  json::Value& arguments = function["arguments"];
  if (form.arguments == ArgumentsForm::kText) {
    if (arguments.is_null()) arguments = "{}";
    if (arguments.is_string()) return;
    std::string text;
    append_spaced(arguments, text);
    arguments = text;
    return;
  }
  if (arguments.is_null()) arguments = json::Object{};
  if (form.arguments == ArgumentsForm::kObject && arguments.is_string()) open_text(arguments, form);
}

void shape_calls(json::Object& message, const TemplateForm& form) {
  if (!has_calls(message)) return;
  for (auto& call : message["tool_calls"].get_array()) {
    if (!call.is_object()) continue;
    json::Value* function = call.get_object().if_contains("function");
    if (function != nullptr && function->is_object()) shape_arguments(function->get_object(), form);
  }
}

}  // namespace

std::string joined_text(const json::Array& parts) {
  std::string text;
  bool first = true;
  for (const auto& part : parts) {
    const json::Value* piece = json::find(part.get_object(), "text");
    if (piece == nullptr) continue;
    if (!first) text += '\n';
    text += std::string_view(piece->get_string());
    first = false;
  }
  return text;
}

json::Array shape_messages(json::Array messages, const TemplateForm& form) {
  for (auto& item : messages) {
    shape_content(item.get_object(), form);
    shape_calls(item.get_object(), form);
  }
  return messages;
}

}  // namespace tern::serve::prepare
