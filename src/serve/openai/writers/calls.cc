#include "serve/openai/writers/calls.h"

#include "json/json.h"
#include "serve/openai/json/writers.h"

namespace tern::serve::openai {

void append_call_pieces(std::span<const answer::Event> events, std::string& out) {
  bool any = false;
  bool open = false;  // the object of a call that has begun
  const auto begin = [&](int32_t index) {
    if (open) out += "}}";
    out += any ? ",{\"index\":" : "[{\"index\":";
    append_int(out, index);
    any = true;
  };
  for (const answer::Event& event : events) {
    if (event.kind == answer::EventKind::kCallBegun) {
      begin(event.index);
      open = true;
      out += ",\"id\":";
      json::append_quoted(out, event.id);
      out += ",\"type\":\"function\",\"function\":{\"name\":";
      json::append_quoted(out, event.name);
    } else if (event.kind == answer::EventKind::kArguments) {
      if (open) {
        out += ",\"arguments\":";
      } else {
        begin(event.index);
        out += ",\"function\":{\"arguments\":";
      }
      json::append_quoted(out, event.text);
      out += "}}";
      open = false;
    }
  }
  if (open) out += "}}";
  out += any ? "]" : "null";
}

void append_calls(const std::vector<WholeCall>& calls, std::string& out) {
  if (calls.empty()) {
    out += "null";
    return;
  }
  for (const WholeCall& call : calls) {
    out += &call == calls.data() ? "[{\"id\":" : ",{\"id\":";
    json::append_quoted(out, call.id);
    out += ",\"type\":\"function\",\"function\":{\"name\":";
    json::append_quoted(out, call.name);
    out += ",\"arguments\":";
    json::append_quoted(out, call.arguments);
    out += "}}";
  }
  out += ']';
}

}  // namespace tern::serve::openai
