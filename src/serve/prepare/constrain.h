// What a request asks of the form of its answer beyond sampling: guided decoding, calls that are forced or strict,
// limits of thoughts (fastdeploy.md 3.10 to 3.12).
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "content/grammar/compiler.h"
#include "engine/request.h"
#include "serve/core/ask.h"

namespace tern::serve::prepare {

struct PrepareInput;

// A text to be compiled before the answer may begin.
struct NeededGrammar {
  content::GrammarSpec spec;
  std::string field, place;                                  // for errors: of the request; in words
  std::shared_ptr<const content::CompiledGrammar> compiled;  // null: not yet
};

// Needs no tokenizer. The last one restricts the answer; those before it are only checked: an answer by a strict tool's
// schema could not be had.
Expected<std::vector<NeededGrammar>> needed_grammars(const Ask& ask, const PrepareInput& input);
// Takes what the compiler has. True: nothing is missing.
bool find_grammars(std::span<NeededGrammar> needed, content::GrammarCompiler* compiler);
// Compiles what is missing; takes as long as the compiler's limits allow.
Status compile_grammars(std::span<NeededGrammar> needed, content::GrammarCompiler& compiler);

// Fills the request's constraint and its limits of thoughts. `prompt`: of the request; `room`: for its answer, tokens.
// The answer of a prompt without thoughts is as long as response_max_tokens at most: ask.max_tokens.
Status constrain(Ask& ask, std::span<const NeededGrammar> grammars, std::span<const int32_t> prompt, int64_t room,
                 const PrepareInput& input, engine::Request& request);

}  // namespace tern::serve::prepare
