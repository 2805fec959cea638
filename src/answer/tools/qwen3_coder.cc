// qwen3_coder: <tool_call>\n<function=NAME>\n<parameter=KEY>\nVALUE\n</parameter>\n</function>\n</tool_call>. The model
// sometimes leaves the outer tags out. Text before the calls and between them is content.
#include "answer/tools/format.h"
#include "answer/tools/parts/grammar_text.h"
#include "answer/tools/xml_calls.h"

namespace tern::answer {
namespace {

constexpr std::string_view kBegin = "<tool_call>", kEnd = "</tool_call>", kFunction = "<function=";
constexpr std::string_view kStart[] = {kBegin, kFunction};
constexpr std::string_view kMarks[] = {kBegin, kEnd};
constexpr size_t kMaxName = 1024;

class Qwen3Coder final : public XmlCalls {
 public:
  Qwen3Coder(std::shared_ptr<const Tools> tools, IdSource ids)
      : XmlCalls({}, std::move(ids), std::move(tools),
                 {.before_key = "<parameter=",
                  .after_key = ">",
                  .before_value = "",
                  .value_end = "</parameter>",
                  .arguments_end = "</function>",
                  .call_end = kEnd,
                  .unknown = ValueKind::kText,
                  .trim = XmlArguments::Trim::kNewline}) {}

 private:
  enum State : uint8_t {
    kText,
    kOpen,  // after <tool_call>
    kName,  // after <function=
    kCall,  // in the arguments
    kTail,  // after </function>
  };

  void step(char c) override;
  void end() override;
  size_t held_elsewhere() const override {
    return begin_.held().size() + tail_.held().size() + held_in_call();  // function_'s bytes are held as such
  }
  void in_text(char c);
  void in_open(char c);
  void in_name(char c);
  void in_tail(char c);
  void not_a_call(char c);

  State state_ = kText;
  bool tagged_ = false;  // <tool_call> stood before this call
  Matcher begin_{kBegin, kFunction}, function_{kFunction}, tail_{kEnd};
  std::string name_;
};

void Qwen3Coder::in_text(char c) {
  switch (begin_.put(c)) {
    case Matcher::Step::kPart:
      return;
    case Matcher::Step::kFull:
      tagged_ = begin_.index() == 0;
      for (const char m : tagged_ ? kBegin : kFunction) hold(m);
      name_.clear();
      state_ = tagged_ ? kOpen : kName;
      return;
    case Matcher::Step::kNo:
      break;
  }
  const bool retry = !begin_.held().empty();
  content(begin_.held());
  begin_.reset();
  if (retry) return in_text(c);  // the byte ended a partial mark; it may start a new one
  content({&c, 1});
}

void Qwen3Coder::not_a_call(char c) {
  release();
  function_.reset();
  state_ = kText;
  in_text(c);
}

void Qwen3Coder::in_open(char c) {
  if (is_space(c) && function_.held().empty()) {
    if (!hold(c)) not_a_call(c);
    return;
  }
  const Matcher::Step found = function_.put(c);
  if (found == Matcher::Step::kNo || !hold(c)) return not_a_call(c);
  if (found == Matcher::Step::kFull) state_ = kName;
}

void Qwen3Coder::in_name(char c) {
  if (c == '>') {
    while (!name_.empty() && is_space(name_.back())) name_.pop_back();
    if (name_.empty()) return not_a_call(c);
    state_ = kCall;
    return begin_named(name_);
  }
  if (c == '<' || c == '\n' || name_.size() >= kMaxName || !hold(c)) return not_a_call(c);
  if (!name_.empty() || !is_space(c)) name_ += c;
}

void Qwen3Coder::in_tail(char c) {
  if (is_space(c) && tail_.held().empty()) return;
  switch (tail_.put(c)) {
    case Matcher::Step::kPart:
      return;
    case Matcher::Step::kFull:
      end_call(valid());
      leave_call();
      state_ = kText;
      return;
    case Matcher::Step::kNo:
      break;
  }
  const std::string held(tail_.held());
  tail_.reset();
  if (!tagged_) {  // no outer end tag is expected
    end_call(valid());
    leave_call();
    state_ = kText;
    for (const char h : held) in_text(h);
    return step(c);
  }
  state_ = kCall;
  arguments(held);
  malformed(c);
}

void Qwen3Coder::step(char c) {
  switch (state_) {
    case kText:
      return in_text(c);
    case kOpen:
      return in_open(c);
    case kName:
      return in_name(c);
    case kCall:
      if (consume_argument_byte(c)) {
        state_ = kTail;
      } else if (!in_call()) {
        state_ = kText;
      }
      return;
    case kTail:
      return in_tail(c);
  }
}

void Qwen3Coder::end() {
  if (state_ == kTail) {
    end_call(valid());  // the call counts although its outer end tag is missing
    leave_call();
  }
  cut();
  content(begin_.held());
  release();
  begin_.reset();
  function_.reset();
  tail_.reset();
  state_ = kText;
}

std::string grammar(const GrammarAsk& ask) {
  GrammarText text(ask);
  const std::string body =
      text.xml_calls({.before_name = text.literal("\n<function="),
                      .after_name = text.literal(">\n"),
                      .before_key = text.literal("<parameter="),
                      .after_key = text.literal(">\n"),
                      .value_end = "\n</parameter>",
                      .after_value = text.literal("\n"),
                      .call_end = GrammarText::row({text.literal("</function>\n"), text.mark(kEnd)}),
                      .unknown = ValueKind::kText});
  return text.calls({.begin = text.mark(kBegin), .body = body, .between = text.literal("\n")});
}

}  // namespace

const ToolFormat kQwen3Coder = {
    .name = "qwen3_coder",
    .start_marks = kStart,
    .trigger = kBegin,
    .marks = kMarks,
    .scanner = [](std::shared_ptr<const Tools> tools, ToolScanner::IdSource ids) -> std::unique_ptr<ToolScanner> {
      return std::make_unique<Qwen3Coder>(std::move(tools), std::move(ids));
    },
    .grammar = grammar,
};

}  // namespace tern::answer
