// Tool calls of a chat (fastdeploy.md 3.11).
#pragma once

#include <span>
#include <string>
#include <vector>

#include "answer/events.h"

namespace tern::serve::openai {

struct WholeCall {
  std::string id, name, arguments;
};

// A list of what the events begin and continue, or null: {index, id, type, function: {name}} and {index, function:
// {arguments}}, one object where both come together.
void append_call_pieces(std::span<const answer::Event> events, std::string& out);
// A list of calls, or null.
void append_calls(const std::vector<WholeCall>& calls, std::string& out);

}  // namespace tern::serve::openai
