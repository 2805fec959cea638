#include "serve/prepare/conversation.h"

#include <fmt/format.h>

#include <utility>

namespace tern::serve::prepare {

json::Object& Conversation::turn() {
  if (turn_.empty()) {
    turn_["role"] = "assistant";
    turn_["content"] = "";
  }
  return turn_;
}

void Conversation::end_turn() {
  if (turn_.empty()) return;
  messages_.push_back(std::move(turn_));
  turn_ = {};
}

void Conversation::system(std::string_view text) {
  end_turn();
  if (messages_.size() == 1 && messages_[0].at("role") == "system") {
    messages_[0].at("content").get_string().append("\n\n").append(text);
    return;
  }
  messages_.push_back(json::Object{{"role", "system"}, {"content", text}});
}

void Conversation::user(json::Value content) {
  end_turn();
  messages_.push_back(json::Object{{"role", "user"}, {"content", std::move(content)}});
}

void Conversation::reasoning(std::string_view text) {
  if (turn_.contains("tool_calls") || !turn()["content"].get_string().empty()) end_turn();
  json::Value& thoughts = turn()["reasoning_content"];
  if (thoughts.is_string())
    thoughts.get_string().append("\n").append(text);
  else
    thoughts = text;
}

void Conversation::text(std::string_view text) {
  if (turn_.contains("tool_calls") || !turn()["content"].get_string().empty()) end_turn();
  turn()["content"] = text;
}

void Conversation::call(std::string_view id, std::string_view name, std::string_view arguments) {
  json::Value& calls = turn()["tool_calls"];
  if (!calls.is_array()) calls = json::Array();
  calls.get_array().push_back(json::Object{
      {"id", id}, {"type", "function"}, {"function", json::Object{{"name", name}, {"arguments", arguments}}}});
}

void Conversation::result(std::string_view id, json::Value content) {
  end_turn();
  messages_.push_back(json::Object{{"role", "tool"}, {"tool_call_id", id}, {"content", std::move(content)}});
}

json::Array Conversation::take(Places& places) {
  end_turn();
  for (size_t i = 0; i < messages_.size(); ++i) {
    json::Array* parts = messages_[i].at("content").if_array();
    for (size_t j = 0; parts != nullptr && j < parts->size(); ++j) {
      json::Object& part = (*parts)[j].get_object();
      const auto place = part.find("place");
      if (place == part.end()) continue;
      places.emplace(fmt::format("messages[{}].content[{}]", i, j), place->value().get_string());
      part.stable_erase(place);
    }
  }
  return std::move(messages_);
}

}  // namespace tern::serve::prepare
