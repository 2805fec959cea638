// Messages of a chat, put together from the items and blocks of other protocols. What the assistant thinks, says and
// calls in one turn is one message, as chat templates take it.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "json/json.h"

namespace tern::serve::prepare {

// Of each picture: where it stands in the chat that was made, "messages[1].content[0]", and where the client has it.
using Places = std::map<std::string, std::string>;
inline void rename_place(const Places& places, std::string& place) {
  if (const auto it = places.find(place); it != places.end()) place = it->second;
}

class Conversation {
 public:
  // Texts at the head of the conversation are one system message, with an empty line between them.
  void system(std::string_view text);
  // A text, or a list of {"type":"text","text"} and {"type":"image_url","image_url":{"url"},"place"}.
  void user(json::Value content);
  // The assistant's turn, in any number of steps.
  void reasoning(std::string_view text);
  void text(std::string_view text);
  void call(std::string_view id, std::string_view name, std::string_view arguments);
  // What a call gave; content as of user().
  void result(std::string_view id, json::Value content);

  bool empty() const { return messages_.empty() && turn_.empty(); }
  // The last message is the assistant's, and it calls nothing.
  bool ends_in_text() const { return !turn_.empty() && !turn_.contains("tool_calls"); }
  bool ends_in_call() const { return turn_.contains("tool_calls"); }
  json::Array take(Places& places);

 private:
  void end_turn();
  json::Object& turn();

  json::Array messages_;
  json::Object turn_;  // of the assistant, while it may go on
};

}  // namespace tern::serve::prepare
