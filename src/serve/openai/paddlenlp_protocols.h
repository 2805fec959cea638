// OpenAI's bodies on PaddleNLP's port: that server's defaults, and native bodies beside them.
#pragma once

#include "serve/core/protocol.h"

namespace tern::serve::openai {

extern const Protocol kPaddleNlpChat, kPaddleNlpCompletions;

}  // namespace tern::serve::openai
