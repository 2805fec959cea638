// glm45 (models-other.md 13.6, 15): <tool_call>NAME\n<arg_key>k</arg_key>\n<arg_value>v</arg_value>...</tool_call>.
// Text after the first call is dropped; later calls are still recognised.
#include "answer/tools/format.h"
#include "answer/tools/parts/grammar_text.h"
#include "answer/tools/xml_calls.h"

namespace tern::answer {
namespace {

constexpr std::string_view kBegin = "<tool_call>", kEnd = "</tool_call>";
constexpr std::string_view kStart[] = {kBegin};
constexpr std::string_view kMarks[] = {kBegin, kEnd, "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"};
constexpr size_t kMaxName = 1024;

class Glm45 final : public XmlCalls {
 public:
  Glm45(std::shared_ptr<const Tools> tools, IdSource ids)
      : XmlCalls({.drop_text_after_first_call = true}, std::move(ids), std::move(tools),
                 {.before_key = "<arg_key>",
                  .after_key = "</arg_key>",
                  .before_value = "<arg_value>",
                  .value_end = "</arg_value>",
                  .arguments_end = kEnd,
                  .call_end = kEnd,
                  .unknown = ValueKind::kJson,
                  .trim = XmlArguments::Trim::kSpace}) {}

 private:
  void step(char c) override;
  void end() override;
  size_t held_elsewhere() const override { return begin_.held().size() + held_in_call(); }
  void in_text(char c);
  void in_name(char c);
  void not_a_call(char c);

  bool reading_name_ = false;
  Matcher begin_{kBegin};
  std::string name_;
};

void Glm45::in_text(char c) {
  switch (begin_.put(c)) {
    case Matcher::Step::kPart:
      return;
    case Matcher::Step::kFull:
      for (const char m : kBegin) hold(m);
      name_.clear();
      reading_name_ = true;
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

void Glm45::not_a_call(char c) {
  release();
  reading_name_ = false;
  in_text(c);
}

void Glm45::in_name(char c) {
  if (c != '\n' && c != '<') {
    if (name_.size() >= kMaxName || !hold(c)) return not_a_call(c);
    if (!name_.empty() || !is_space(c)) name_ += c;
    return;
  }
  if (name_.empty() && c == '\n' && hold(c)) return;  // a newline before the name is skipped
  while (!name_.empty() && is_space(name_.back())) name_.pop_back();
  if (name_.empty()) return not_a_call(c);
  reading_name_ = false;
  begin_named(name_);
  if (c == '<') step(c);
}

void Glm45::step(char c) {
  if (in_call()) {
    if (!consume_argument_byte(c)) return;
    end_call(valid());
    return leave_call();
  }
  reading_name_ ? in_name(c) : in_text(c);
}

void Glm45::end() {
  if (in_call()) return cut();
  content(begin_.held());
  begin_.reset();
  release();
  reading_name_ = false;
}

std::string grammar(const GrammarAsk& ask) {
  GrammarText text(ask);
  const std::string body = text.xml_calls({.after_name = text.literal("\n"),
                                           .before_key = text.mark("<arg_key>"),
                                           .after_key = GrammarText::row({text.mark("</arg_key>"), text.literal("\n")}),
                                           .before_value = text.mark("<arg_value>"),
                                           .value_end = "</arg_value>",
                                           .after_value = text.literal("\n"),
                                           .call_end = text.mark(kEnd),
                                           .unknown = ValueKind::kJson});
  return text.calls({.begin = text.mark(kBegin), .body = body, .between = text.literal("\n")});
}

}  // namespace

const ToolFormat kGlm45 = {
    .name = "glm45",
    .start_marks = kStart,
    .trigger = kBegin,
    .marks = kMarks,
    .scanner = [](std::shared_ptr<const Tools> tools, ToolScanner::IdSource ids) -> std::unique_ptr<ToolScanner> {
      return std::make_unique<Glm45>(std::move(tools), std::move(ids));
    },
    .grammar = grammar,
};

}  // namespace tern::answer
