// Prompts of a request as token ids: text through the tokenizer, pictures through the layout of their placeholders.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "content/media/media.h"
#include "serve/core/choice.h"
#include "serve/prepare/prepare.h"

namespace tern::serve::prepare {

// kInvalidArgument with `param`: no tokenizer, no UTF-8, an id the model does not know.
Expected<std::vector<int32_t>> encode_text(const PrepareInput& input, std::string_view text, bool special,
                                           const char* param);

// All prompts of a pending. kInvalidArgument when numbers of placeholders and media differ.
Expected<std::vector<PromptFacts>> encode_prompts(PendingRequest& pending,
                                                  std::span<const content::PreparedMediaPtr> media);

}  // namespace tern::serve::prepare
