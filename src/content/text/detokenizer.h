// Token ids of one stream to text, piece by piece.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "content/text/token_table.h"
#include "content/text/tokenizer.h"

namespace tern::content {

// A value per stream; the tokenizer must outlive it. The deltas of push() and finish() joined together equal
// Tokenizer::decode of all ids pushed. Every delta is valid UTF-8: bytes of an unfinished character wait (at most 3 of
// them, so the total cost is linear) and bytes that can no longer become a character leave as U+FFFD.
class StreamDetokenizer {
 public:
  explicit StreamDetokenizer(const Tokenizer& tokenizer, bool skip_special_tokens = true);

  // Text that became certain with these ids; may be empty.
  std::string push(std::span<const int32_t> ids);
  std::string push(int32_t id) { return push(std::span<const int32_t>(&id, 1)); }
  // End of the stream: what was still held back.
  std::string finish();
  // Bytes waiting for the rest of their character.
  bool pending() const { return joiner_.pending(); }

 private:
  const TokenTable* table_;
  TokenJoiner joiner_;
  bool skip_special_tokens_;
};

}  // namespace tern::content
