// Compiled grammars as the engine takes them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "content/grammar/grammar.h"
#include "engine/grammar.h"

namespace tern::serve {

// Where in an answer the grammar holds.
struct GrammarPlace {
  // The answer may open with `thoughts_begin`; then it is free until `thoughts_end`, behind which the grammar begins.
  std::optional<int32_t> thoughts_begin, thoughts_end;  // both or none
  // The answer is free until this id; behind it the grammar begins.
  std::optional<int32_t> trigger;
};

// `ids`: GrammarVocabulary::ids() of the grammar.
std::shared_ptr<const engine::Grammar> engine_grammar(std::shared_ptr<const content::CompiledGrammar> compiled,
                                                      size_t ids, const GrammarPlace& place);

}  // namespace tern::serve
