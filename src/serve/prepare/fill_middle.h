// A prompt whose answer fills the gap before a suffix, in the marks of the model's vocabulary.
#pragma once

#include <string>
#include <string_view>

#include "base/error.h"
#include "content/text/tokenizer.h"

namespace tern::serve::prepare {

// The text in front, the suffix, and where the answer begins, with marks between. kInvalidArgument where the vocabulary
// has none.
Expected<std::string> around_gap(const content::Tokenizer& tokenizer, std::string_view text, std::string_view suffix);

}  // namespace tern::serve::prepare
