// The writers of /v1/chat/completions and /v1/completions.
#pragma once

#include <memory>
#include <string_view>

#include "serve/core/generation.h"

namespace tern::serve::openai {

// By the ask: of a chat or a completion, streamed or whole.
std::unique_ptr<Writer> make_writer(const Generation& generation);

// What the client reads as `finish_reason`.
std::string_view finish_name(const Choice& choice);

}  // namespace tern::serve::openai
