// /v1/chat/completions, /v1/completions; of pooling models /v1/embeddings, /v1/reward and /v1/chat/reward.
#pragma once

#include "serve/core/protocol.h"

namespace tern::serve::openai {

extern const Protocol kChat, kCompletions, kEmbeddings, kRewards;

}  // namespace tern::serve::openai
