// The text of one choice to events: through the reasoning and tool-call parsers of the server.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>

#include "answer/answer_parser.h"

namespace tern::serve {

// Stop strings hold the end of a text back, the parser wants each token with its own text: tokens wait here until all
// of their text has passed.
class AnswerText {
 public:
  AnswerText(const answer::AnswerFormat& format, answer::AnswerOptions options) : parser_(format, std::move(options)) {}

  // A token (or none: text that is no token's) with `bytes` of text, of which and of the tokens before `passed` may now
  // be read.
  void push(std::optional<int32_t> id, size_t bytes, std::string_view passed, answer::Events& out);
  // The end. What was held back and has not passed by now was cut off by a stop string.
  void finish(bool natural, answer::Events& out);

  bool wants_end() const { return parser_.wants_end(); }
  int64_t reasoning_tokens() const { return parser_.reasoning_tokens(); }

 private:
  struct Waiting {
    std::optional<int32_t> id;
    size_t bytes = 0;
  };
  void feed(std::optional<int32_t> id, std::string_view text, answer::Events& out);

  answer::AnswerParser parser_;
  std::deque<Waiting> waiting_;
  std::string passed_;  // the beginning of the text of waiting tokens
};

}  // namespace tern::serve
