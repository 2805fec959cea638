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
  // Goes on after a text of `before`: what push() and finish() give, put after Tokenizer::decode of `before`, is the
  // text of all ids. So a first word keeps its space, and a character that `before` begins is finished. Call it first.
  void continue_after(std::span<const int32_t> before);
  // What `before` of continue_after() holds of a character that its ids do not finish: decode() shows it as U+FFFD,
  // after which the stream would show it again. Characters at the end of that decode to leave out.
  int unfinished() const { return unfinished_; }

  // Text that became certain with these ids; may be empty.
  std::string push(std::span<const int32_t> ids);
  std::string push(int32_t id) { return push(std::span<const int32_t>(&id, 1)); }
  // End of the stream: what was still held back.
  std::string finish();
  // Bytes waiting for the rest of their character.
  bool pending() const { return joiner_.pending(); }
  // Nothing was written yet and the first space, if there is one, will be dropped.
  bool drops_space() const { return table_->rules().strip_first_space && joiner_.at_start(); }
  // Characters that the last push(id) gave for the tokens before that one (their unfinished character as U+FFFD).
  int earlier() const { return joiner_.earlier(); }

 private:
  const TokenTable* table_;
  TokenJoiner joiner_;
  bool skip_special_tokens_;
  int unfinished_ = 0;
};

}  // namespace tern::content
