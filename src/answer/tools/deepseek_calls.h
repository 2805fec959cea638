// The calls of DeepSeek models: one block of calls, with marks of its own (models-other.md 13.4, 13.5, 15).
#pragma once

#include "answer/matcher.h"
#include "answer/tools/format.h"
#include "answer/tools/parts/json_cursor.h"

namespace tern::answer {

inline constexpr std::string_view kDeepseekBegin = "<｜tool▁calls▁begin｜>", kDeepseekEnd = "<｜tool▁calls▁end｜>",
                                  kDeepseekCall = "<｜tool▁call▁begin｜>", kDeepseekCallEnd = "<｜tool▁call▁end｜>",
                                  kDeepseekSep = "<｜tool▁sep｜>";
inline constexpr std::string_view kDeepseekStart[] = {kDeepseekBegin};
inline constexpr std::string_view kDeepseekMarks[] = {kDeepseekBegin, kDeepseekEnd, kDeepseekCall, kDeepseekCallEnd,
                                                      kDeepseekSep};

enum class DeepseekForm : uint8_t {
  kCodeFence,  // V3 and R1: TYPE<sep>NAME\n```json\nARGUMENTS\n```
  kPlain,      // V3.1: NAME<sep>ARGUMENTS
};

// Text before and after the block is content.
class DeepseekCalls final : public ToolScanner {
 public:
  DeepseekCalls(DeepseekForm form, IdSource ids) : ToolScanner({}, std::move(ids)), form_(form) {}

 private:
  enum State : uint8_t {
    kText,
    kBlock,  // between the calls of a block
    kHead,   // up to the separator
    kName,   // kCodeFence: up to the end of the line
    kFence,  // kCodeFence: before the arguments
    kArguments,
    kTail,  // after the arguments
    kRaw,   // malformed, the name known: verbatim up to the end mark
  };
  static constexpr size_t kMaxName = 1024;

  void step(char c) override;
  void end() override;
  size_t held_elsewhere() const override {
    return begin_.held().size() + end_.held().size() + (open_ ? fence_.held().size() + close_.held().size() : 0);
  }
  void in_text(char c);
  void in_block(char c);
  void in_head(char c);
  void in_name(char c);
  void in_fence(char c);
  void in_arguments(char c);
  void in_tail(char c);
  void in_raw(char c);
  bool trim_name();
  void begin_named();
  void not_a_call(char c);
  void malformed(char c);

  DeepseekForm form_;
  State state_ = kText;
  bool open_ = false;
  Matcher begin_{kDeepseekBegin}, block_{kDeepseekCall, kDeepseekEnd}, sep_{kDeepseekSep}, fence_{"```json", "```\n"},
      close_{"```"}, end_{kDeepseekCallEnd};
  std::string name_;
  JsonCursor cursor_;
};

std::string deepseek_grammar(const GrammarAsk& ask, DeepseekForm form);

}  // namespace tern::answer
