// The writers of the routes of OpenAI's protocol.
#pragma once

#include <memory>
#include <string_view>

#include "serve/core/generation.h"

namespace tern::serve::openai {

// By the ask: of a chat or a completion, streamed or whole.
std::unique_ptr<Writer> make_writer(const Generation& generation);
// Of embeddings and rewards.
std::unique_ptr<Writer> make_pooling_writer(const Generation& generation);

// What the client reads as `finish_reason`.
std::string_view finish_name(const Choice& choice);

}  // namespace tern::serve::openai
