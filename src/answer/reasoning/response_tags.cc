#include "answer/reasoning/response_tags.h"

namespace tern::answer {
namespace {

constexpr std::string_view kBegin = "<response>", kEnd = "</response>", kCall = "<tool_call>";

}  // namespace

ResponseTags::ResponseTags(ReasoningStart start, bool calls_in_response)
    : state_(start == ReasoningStart::kResponse ? kInside
             : start == ReasoningStart::kCall   ? kPass
                                                : kOutside),
      outside_{kBegin, kCall},
      inside_(calls_in_response ? Matcher{kEnd, kCall} : Matcher{kEnd}) {}

bool ResponseTags::byte(char c, std::string& out) {
  Matcher& marks = state_ == kOutside ? outside_ : inside_;
  switch (marks.put(c)) {
    case Matcher::Step::kPart:
      return true;
    case Matcher::Step::kFull:
      if (marks.index() == 1) {
        out += kCall;
        state_ = kPass;
      } else {
        state_ = state_ == kOutside ? kInside : kOutside;
      }
      return true;
    case Matcher::Step::kNo:
      break;
  }
  const std::string_view held = marks.held();
  if (state_ == kInside) out += held;
  const bool retry = !held.empty();
  marks.reset();
  if (!retry && state_ == kInside) out += c;
  return !retry;
}

void ResponseTags::push(std::string_view text, std::string& out) {
  for (size_t i = 0; i < text.size(); ++i) {
    if (state_ == kPass) {
      out += text.substr(i);
      return;
    }
    if (!byte(text[i], out)) byte(text[i], out);
  }
}

void ResponseTags::finish(std::string& out) {
  if (state_ == kInside) out += inside_.held();
  outside_.reset();
  inside_.reset();
}

}  // namespace tern::answer
