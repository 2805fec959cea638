// Messages as lists of blocks, as messages of a chat.
#pragma once

#include <string>

#include "base/error.h"
#include "json/json.h"
#include "serve/prepare/conversation.h"

namespace tern::serve::anthropic {

// `system`: a text, or a list of text blocks.
Status read_system(const json::Value& system, prepare::Conversation& conversation);
// Uses up the list. Errors name the place: messages[2].content[0].
Status read_messages(json::Array& messages, prepare::Conversation& conversation);

}  // namespace tern::serve::anthropic
