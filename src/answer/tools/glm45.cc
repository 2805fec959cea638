// glm45 (models-other.md 13.6, 15): <tool_call>NAME\n<arg_key>k</arg_key>\n<arg_value>v</arg_value>...</tool_call>.
// Text behind the first call is dropped.
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
      : XmlCalls({.drop_behind = true}, std::move(ids), std::move(tools),
                 {.before_key = "<arg_key>",
                  .behind_key = "</arg_key>",
                  .before_value = "<arg_value>",
                  .behind_value = "</arg_value>",
                  .close = kEnd,
                  .end = kEnd,
                  .unknown = ValueKind::kJson,
                  .trim = XmlArguments::Trim::kSpace}) {}

 private:
  void step(char c) override;
  void end(bool natural) override;
  size_t held_elsewhere() const override { return begin_.held().size() + held_in_call(); }
  void in_text(char c);
  void in_name(char c);
  void no_call(char c);

  bool naming_ = false;
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
      naming_ = true;
      return;
    case Matcher::Step::kNo:
      break;
  }
  const bool again = !begin_.held().empty();
  content(begin_.held());
  begin_.reset();
  if (again) return in_text(c);
  content({&c, 1});
}

void Glm45::no_call(char c) {
  release();
  naming_ = false;
  in_text(c);
}

void Glm45::in_name(char c) {
  if (c != '\n' && c != '<') {
    if (name_.size() >= kMaxName || !hold(c)) return no_call(c);
    if (!name_.empty() || !is_space(c)) name_ += c;
    return;
  }
  if (name_.empty() && c == '\n' && hold(c)) return;
  while (!name_.empty() && is_space(name_.back())) name_.pop_back();
  if (name_.empty()) return no_call(c);
  naming_ = false;
  begin_named(name_);
  if (c == '<') step(c);
}

void Glm45::step(char c) {
  if (in_call()) {
    if (!in_arguments(c)) return;
    end_call(valid());
    return leave_call();
  }
  naming_ ? in_name(c) : in_text(c);
}

void Glm45::end(bool) {
  if (in_call()) return cut();
  content(begin_.held());
  begin_.reset();
  release();
  naming_ = false;
}

std::string grammar(const GrammarAsk& ask) {
  GrammarText text(ask);
  const std::string body =
      text.xml_calls({.behind_name = text.literal("\n"),
                      .before_key = text.mark("<arg_key>"),
                      .behind_key = GrammarText::row({text.mark("</arg_key>"), text.literal("\n")}),
                      .before_value = text.mark("<arg_value>"),
                      .close = "</arg_value>",
                      .behind_value = text.literal("\n"),
                      .end = text.mark(kEnd),
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
