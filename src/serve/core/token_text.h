// Token ids of one choice to the text its client may see: through the detokenizer, then through the stop strings.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "content/text/detokenizer.h"
#include "content/text/stop_text.h"

namespace tern::serve {

class TokenText {
 public:
  struct Rules {
    const content::Tokenizer* tokenizer = nullptr;  // null: there is no text
    bool skip_special_tokens = false;
    const std::vector<std::string>* stop = nullptr;  // null or empty: none
    bool include_stop = false;
    bool count = false;  // characters, for the offsets of log-probs
  };
  struct Piece {
    std::string text;        // for the client
    std::string raw;         // before stop strings cut it
    bool stopped = false;    // a stop string was met: `text` is the last
    int32_t stop = -1;       // which one
    bool spaceless = false;  // the text's first space, which the token begins with, is not shown
    int64_t offset = 0;      // of the token in the text, in characters, stop strings included
  };

  explicit TokenText(const Rules& rules);
  // The text goes on where that of `ids` ends, so that both can be joined. Call it first.
  void continue_after(std::span<const int32_t> ids);
  // Characters at the end of that text which decode() shows as U+FFFD and the first tokens finish.
  int unfinished() const { return detokenizer_ ? detokenizer_->unfinished() : 0; }
  // What stands in front of the text and counts in offsets.
  void begin_at(int64_t characters) { characters_ = characters; }

  // `shown`: false for an end token that is left out. `last`: nothing comes after.
  Piece push(int32_t id, bool shown, bool last);
  // The end without a token.
  Piece finish();

 private:
  void match(Piece& piece, bool last);

  std::optional<content::StreamDetokenizer> detokenizer_;
  std::unique_ptr<content::StopMatcher> stop_;  // only with stop strings
  bool count_;
  int64_t characters_ = 0;  // of the text so far: where the next token's text begins
};

// Unicode characters in valid UTF-8.
int64_t count_characters(std::string_view text);

}  // namespace tern::serve
