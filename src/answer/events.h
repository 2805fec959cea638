// What the text of an answer means, piece by piece. Writers of protocols turn events into bytes; whole and streamed
// answers are made of the same events.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tern::answer {

enum class EventKind : uint8_t {
  kReasoning,  // `text`: a piece of the thoughts
  kContent,    // `text`: a piece of the answer itself
  kCallBegun,  // `index`, `id`, `name`: a tool call
  kArguments,  // `index`, `text`: a piece of that call's arguments, verbatim
  kCallEnded,  // `index`, `complete`
  kFinish,     // the last event: `complete`
};

struct Event {
  EventKind kind = EventKind::kContent;
  // Calls are numbered from 0 in the order in which they begin. The events of one call lie between its kCallBegun and
  // its kCallEnded without another call's.
  int32_t index = 0;
  // kCallEnded: the call is well-formed to its end. kFinish: the answer has ended by itself, with at least one call and
  // nothing but complete ones: finish_reason is "tool_calls".
  bool complete = false;
  std::string text;
  std::string id;
  std::string name;

  bool operator==(const Event&) const = default;
};

using Events = std::vector<Event>;

// Appends a piece of text; pieces of one kind (and one call) that follow each other become one event.
inline void append_text(Events& events, EventKind kind, int32_t index, const char* data, size_t size) {
  if (size == 0) return;
  if (events.empty() || events.back().kind != kind || events.back().index != index) {
    events.push_back({.kind = kind, .index = index, .text = {}, .id = {}, .name = {}});
  }
  events.back().text.append(data, size);
}

}  // namespace tern::answer
