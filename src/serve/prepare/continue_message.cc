#include "serve/prepare/continue_message.h"

#include <string_view>

#include "serve/core/invalid.h"

namespace tern::serve::prepare {
namespace {

// White space as no template writes it after a content: whether it is still there tells whether the template trims.
// The last mark in the prompt is ours, whatever a message holds.
constexpr std::string_view kMark = "[[tern: the final message ends]]", kTail = " \t \t";
constexpr std::string_view kSpace = " \t\n\r\f\v";

json::Value* last_text(json::Object& message) {
  json::Value* content = message.if_contains("content");
  if (content == nullptr || content->is_string()) return content;
  json::Array* parts = content->if_array();
  for (size_t i = parts != nullptr ? parts->size() : 0; i-- > 0;) {
    json::Object* part = (*parts)[i].if_object();
    json::Value* text = part != nullptr ? part->if_contains("text") : nullptr;
    if (text != nullptr && text->is_string()) return text;
  }
  return nullptr;
}

Error no_text() {
  return invalid_value("continue_final_message is set but the final message has no text to continue",
                       "continue_final_message");
}

}  // namespace

Status mark_final_message(json::Value& messages) {
  json::Array* list = messages.if_array();
  if (list == nullptr || list->empty() || !list->back().is_object()) return no_text();
  if (json::find(list->back().get_object(), "tool_calls") != nullptr) {  // they would be cut off
    return invalid_value("continue_final_message is set but the final message calls tools", "continue_final_message");
  }
  json::Value* text = last_text(list->back().get_object());
  if (text == nullptr || !text->is_string()) return no_text();
  text->get_string().append(kMark).append(kTail);
  return {};
}

Expected<std::string> cut_at_mark(std::string rendered) {
  const size_t at = rendered.rfind(kMark);
  if (at == std::string::npos) {
    return invalid_value("continue_final_message is set but the chat template does not print the final message",
                         "continue_final_message");
  }
  const bool keeps_space = std::string_view(rendered).substr(at + kMark.size()).starts_with(kTail);
  rendered.resize(at);
  if (!keeps_space) rendered.resize(rendered.find_last_not_of(kSpace) + 1);  // npos + 1 is 0
  return rendered;
}

}  // namespace tern::serve::prepare
