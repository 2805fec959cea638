// Routes of PaddleNLP's port: OpenAI's bodies with that server's defaults, and native ones beside them.
#pragma once

#include "serve/core/protocol.h"

namespace tern::serve::native {

extern const Protocol kChat, kCompletions;

}  // namespace tern::serve::native
