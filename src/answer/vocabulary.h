// What a parser has to know about the tokens of a model.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>

namespace tern::content {
class Tokenizer;
}

namespace tern::answer {

struct Vocabulary {
  // The id of the added or special token with exactly this text; nothing if there is none, even if the text is one
  // ordinary token.
  std::function<std::optional<int32_t>(std::string_view)> mark_id;
  // The token's raw bytes, before the detokenizer.
  std::function<std::string_view(int32_t)> bytes;
  // A control token (a turn's begin or end, end of text).
  std::function<bool(int32_t)> special;
};

// The tokenizer must outlive the result.
Vocabulary vocabulary_of(const content::Tokenizer& tokenizer);

}  // namespace tern::answer
