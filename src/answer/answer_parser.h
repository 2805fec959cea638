// The tokens of an answer to events: thoughts first, then tool calls, then what is left as content.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "answer/events.h"
#include "answer/reasoning/reasoning.h"
#include "answer/reasoning/response_tags.h"
#include "answer/tools/format.h"
#include "answer/vocabulary.h"
#include "base/error.h"

namespace tern::answer {

// The parsers of a server, resolved in its vocabulary. Immutable; made once.
class AnswerFormat {
 public:
  // Names as --reasoning-parser and --tool-call-parser take them; "" is none. An unknown name is kInvalidArgument with
  // the names that are known.
  static Expected<AnswerFormat> make(std::string_view reasoning, std::string_view tools, Vocabulary vocabulary);

  const ReasoningMarks* reasoning() const { return reasoning_ ? &*reasoning_ : nullptr; }
  const ToolFormat* tools() const { return tools_; }
  const Vocabulary& vocabulary() const { return vocabulary_; }

  // Where the answer to this prompt begins: kOpenable without a reasoning parser.
  ReasoningStart start(std::span<const int32_t> prompt) const;
  // Tokens that begin a call: what tool_choice "none" masks. Marks of several tokens have none.
  std::vector<int32_t> call_tokens() const;
  // The mark that a token stands for to the tool scanner; "" for every other token.
  std::string_view tool_mark(int32_t id) const;

 private:
  Vocabulary vocabulary_;
  std::optional<ReasoningMarks> reasoning_;
  const ToolFormat* tools_ = nullptr;
  std::unordered_map<int32_t, std::string_view> tool_marks_;
};

struct AnswerOptions {
  ReasoningStart start = ReasoningStart::kOpenable;  // AnswerFormat::start
  std::shared_ptr<const Tools> tools;
  bool parse_calls = false;    // the request has tools and tool_choice is not "none"
  bool parallel_calls = true;  // false: the answer is over with its first call
  // What follows the thoughts is the answer as it is: a grammar has no place for the tags around it.
  bool untagged = false;
  // 32 hexadecimal digits, never the same twice: ids of calls are made of them.
  std::function<std::string()> random_hex;
};

// The state of one choice. The format must outlive it.
class AnswerParser {
 public:
  AnswerParser(const AnswerFormat& format, AnswerOptions options);

  // Appends the events that became certain. `piece`: the text that the detokenizer gave for this token, in the order of
  // the tokens; valid UTF-8, and so are the events' texts. The end token is not pushed: it belongs to no part.
  void push(int32_t id, std::string_view piece, Events& out);
  // Text without a token of its own: what the detokenizer held to the end.
  void push_rest(std::string_view piece, Events& out);
  // The end. natural: the model ended it (an end token or a stop string), no limit and no abort. Appends kFinish last.
  void finish(bool natural, Events& out);

  // Tokens of the thoughts; exact after finish().
  int64_t reasoning_tokens() const { return reasoning_ ? reasoning_->tokens() : 0; }
  bool thinking() const { return reasoning_ && reasoning_->thinking(); }
  // parallel_calls is false and the first call has ended: generation may stop, and ends naturally. Later text is
  // dropped.
  bool wants_end() const;
  // Bytes that went in and did not leave yet.
  size_t held() const;

 private:
  void answer(std::string_view text, Events& out);
  void spread(Events& out);
  void scan(std::string_view text, Events& out);

  const AnswerFormat* format_;
  bool parallel_calls_;
  bool parse_calls_;
  std::optional<ReasoningScanner> reasoning_;
  std::optional<ResponseTags> response_;
  std::unique_ptr<ToolScanner> scanner_;
  std::vector<Segment> segments_;
  std::string text_;
};

}  // namespace tern::answer
