// A text by its tokens, with their log-probs and where each begins.
#pragma once

#include <cstdint>
#include <vector>

#include "serve/core/generation.h"

namespace tern::serve {

struct ScoredText {
  std::vector<engine::TokenOutput> tokens;  // without log-probs: nothing stands in front of it
  std::vector<int64_t> offsets;             // characters before each token
};

// The prompt of a choice, once its log-probs have come. Tokens that the tokenizer put in front of the client's text
// begin where that text begins.
ScoredText score_prompt(const Generation& generation, const Choice& choice);

}  // namespace tern::serve
