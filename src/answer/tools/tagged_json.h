// <tool_call> {"name": ..., "arguments": ...} </tool_call>, as Hermes, Qwen and the ERNIE models write it.
#pragma once

#include "answer/matcher.h"
#include "answer/tools/format.h"
#include "answer/tools/parts/call_object.h"

namespace tern::answer {

class TaggedJson final : public ToolScanner {
 public:
  TaggedJson(Policy policy, IdSource ids);

 private:
  enum State : uint8_t {
    kText,
    kObject,  // after the start mark
    kTail,    // after the object
    kRaw,     // malformed, the name known: verbatim up to the end mark
  };

  void step(char c) override;
  void end() override;
  size_t held_elsewhere() const override { return begin_.held().size() + end_.held().size(); }
  void in_text(char c);
  void in_object(char c);
  void in_tail(char c);
  void in_raw(char c);

  State state_ = kText;
  bool open_ = false;  // the name of the call at hand is known
  Matcher begin_{"<tool_call>"}, end_{"</tool_call>"};
  CallObject object_;
};

// The grammar of these formats.
std::string tagged_json_grammar(const GrammarAsk& ask);

}  // namespace tern::answer
