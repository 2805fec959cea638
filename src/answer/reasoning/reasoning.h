// Which part of an answer is thoughts.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "answer/matcher.h"
#include "answer/vocabulary.h"

namespace tern::answer {

// Where an answer begins, as the end of its prompt says.
enum class ReasoningStart : uint8_t {
  kOpenable,  // in the answer, which may still open thoughts with its first mark
  kThinking,  // in the thoughts
  kAnswer,    // in the answer; thoughts are over
  kResponse,  // the same, inside <response>
  kCall,      // the same, inside <tool_call>
};

enum class Strip : uint8_t { kNothing, kNewlines, kSpace };

// A parser by name: models-other.md 14, models-ernie-paddleocr.md 8.
struct ReasoningFormat {
  std::string_view name;
  std::string_view begin = "<think>";
  std::string_view end = "</think>";
  ReasoningStart unmarked = ReasoningStart::kOpenable;  // the prompt ends with no mark
  Strip after_end = Strip::kNothing;                    // what is dropped directly after the end mark
  bool response_tags = false;                           // the answer stands in <response>...</response>
  // Of an answer's tokens thoughts may take so many per cent where the request sets no limit; 0: any number.
  int32_t most_percent = 0;
};

std::span<const ReasoningFormat> reasoning_formats();
// Nothing when there is none of this name (`ernie_x1` and `ernie-x1` are both known).
const ReasoningFormat* find_reasoning_format(std::string_view name);

// The marks of a format in a vocabulary. A mark that is one token is known by its id, whatever text the detokenizer
// gives for it; the text of any other mark is searched.
struct ReasoningMarks {
  const ReasoningFormat* format = nullptr;
  std::optional<int32_t> begin, end;
};
ReasoningMarks reasoning_marks(const ReasoningFormat& format, const Vocabulary& vocabulary);

// Reads the state from the prompt's tail: the last mark after the last control token (a mark in an earlier turn, or in
// what a user wrote, says nothing).
ReasoningStart reasoning_start(const ReasoningMarks& marks, const Vocabulary& vocabulary,
                               std::span<const int32_t> prompt);

struct Segment {
  bool reasoning = false;
  std::string text;
};

// One answer's state. Joined, the segments are the answer's text without marks and without what is stripped.
class ReasoningScanner {
 public:
  static constexpr size_t kMaxHead = 256;  // white space held in front of a begin mark, bytes

  ReasoningScanner(const ReasoningMarks& marks, ReasoningStart start);

  // A token and the text that the detokenizer gave for it (which may begin with the end of an earlier character).
  void push(int32_t id, std::string_view piece, std::vector<Segment>& out);
  // Text without a token of its own.
  void push_rest(std::string_view piece, std::vector<Segment>& out);
  void finish(std::vector<Segment>& out);

  // Tokens of the thoughts: those before the end mark, without marks. Exact once the answer is finished; before, tokens
  // that may belong to a mark are not counted yet.
  int64_t tokens() const { return tokens_; }
  bool thinking() const { return state_ == kThinkHead || state_ == kThinking; }
  size_t held() const { return head_.size() + matcher_.held().size(); }

 private:
  enum State : uint8_t {
    kHead,       // in the answer, nothing but white space said
    kThinkHead,  // in the thoughts, nothing but white space said
    kThinking,
    kAnswer,
  };

  void text(std::string_view piece, bool counts);
  void byte(char c);
  void release();
  void say(std::string_view text);
  void leave_head();
  void begin_mark();
  void end_mark();
  void put(bool reasoning, std::string_view text);

  ReasoningMarks marks_;
  State state_;
  Matcher matcher_;  // marks of several tokens
  Strip strip_ = Strip::kNothing;
  std::string head_;  // white space at the beginning, held
  int64_t tokens_ = 0;
  // Tokens of which every byte is held: those with white space at the beginning, those with bytes of a mark only.
  int64_t waiting_head_ = 0, waiting_mark_ = 0;
  // Bytes of the token at hand that were said, are held in head_, are held in matcher_.
  bool own_said_ = false, own_head_ = false, own_mark_ = false;
  std::vector<Segment>* out_ = nullptr;
};

}  // namespace tern::answer
