// Other protocols in the words of a chat request.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "json/json.h"

namespace tern::serve::openai {

// Fields of sampling and of the template that these protocols do not have themselves act as in a chat request, those of
// `taken` excepted. They are moved from `body`.
void move_extras(json::Object& body, std::span<const std::string_view> taken, json::Object& chat);

// A tool of a chat request; `schema` under "parameters". Parts that are null are left out.
json::Object chat_tool(json::Value name, json::Value description, json::Value schema, json::Value strict);
// tool_choice of a chat request that names a tool.
json::Object chat_choice(std::string_view name);

// A fault names the field as its protocol does: the pairs are (of a chat, here).
Error renamed(Error error, std::span<const std::pair<std::string_view, std::string_view>> names);

}  // namespace tern::serve::openai
