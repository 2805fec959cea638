// /v1/chat/completions and /v1/completions.
#pragma once

#include "serve/core/protocol.h"

namespace tern::serve::openai {

extern const Protocol kChat, kCompletions;

}  // namespace tern::serve::openai
