#include "serve/core/scored_text.h"

#include <algorithm>

namespace tern::serve {

ScoredText score_prompt(const Generation& generation, const Choice& choice) {
  const PromptFacts& facts = generation.prompt(choice);
  TokenText text({.tokenizer = generation.tokenizer(), .count = true});
  ScoredText out;
  std::string spelled;
  for (size_t i = 0; i < facts.ids.size(); ++i) {
    engine::TokenOutput& token = out.tokens.emplace_back();
    token.id = facts.ids[i];
    if (i > 0 && i <= choice.prompt_logprobs.size()) token.logprobs = choice.prompt_logprobs[i - 1];
    const TokenText::Piece piece = text.push(token.id, true, i + 1 == facts.ids.size());
    out.offsets.push_back(piece.offset);
    spelled += piece.raw;
  }
  if (!spelled.ends_with(facts.text)) return out;
  const int64_t front = count_characters(spelled) - count_characters(facts.text);
  for (int64_t& offset : out.offsets) offset = std::max<int64_t>(offset - front, 0);
  return out;
}

}  // namespace tern::serve
