// The input of a response: a text, or a list of items, as messages of a chat.
#pragma once

#include "base/error.h"
#include "json/json.h"
#include "serve/prepare/conversation.h"

namespace tern::serve::responses {

// Uses up `input`. Errors name the place: input[2].content[0].
Status read_input(json::Value& input, prepare::Conversation& conversation);

}  // namespace tern::serve::responses
