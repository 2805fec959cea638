// Compiled grammars as the engine takes them.
#pragma once

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

std::shared_ptr<const engine::Grammar> engine_grammar(std::shared_ptr<const content::CompiledGrammar> compiled,
                                                      const GrammarPlace& place);

}  // namespace tern::serve
