#include "answer/tools/tagged_json.h"

#include "answer/tools/parts/grammar_text.h"

namespace tern::answer {

TaggedJson::TaggedJson(Policy policy, IdSource ids) : ToolScanner(policy, std::move(ids)) {}

void TaggedJson::step(char c) {
  switch (state_) {
    case kText:
      return in_text(c);
    case kObject:
      return in_object(c);
    case kTail:
      return in_tail(c);
    case kRaw:
      return in_raw(c);
  }
}

void TaggedJson::in_text(char c) {
  switch (begin_.put(c)) {
    case Matcher::Step::kPart:
      return;
    case Matcher::Step::kFull:
      if (!may_begin()) return content("<tool_call>");
      for (const char m : std::string_view("<tool_call>")) hold(m);
      object_.reset();
      open_ = false;
      state_ = kObject;
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

void TaggedJson::in_object(char c) {
  const CallObject::Step result = object_.step(c);
  if (result == CallObject::Step::kError || (!object_.begun() && (result == CallObject::Step::kEnd || !hold(c)))) {
    if (!open_) {
      release();
      state_ = kText;
    } else {
      state_ = kRaw;
    }
    return step(c);
  }
  if (!object_.begun()) return;
  if (!open_) begin_call(object_.name());
  open_ = true;
  arguments(object_.arguments());
  object_.arguments().clear();
  if (result == CallObject::Step::kEnd) state_ = kTail;
}

void TaggedJson::in_tail(char c) {
  if (is_space(c) && end_.held().empty()) return;
  switch (end_.put(c)) {
    case Matcher::Step::kPart:
      return;
    case Matcher::Step::kFull:
      end_call(object_.has_arguments());
      state_ = kText;
      return;
    case Matcher::Step::kNo:
      break;
  }
  arguments(end_.held());
  end_.reset();
  state_ = kRaw;
  in_raw(c);
}

void TaggedJson::in_raw(char c) {
  switch (end_.put(c)) {
    case Matcher::Step::kPart:
      return;
    case Matcher::Step::kFull:
      end_call(false);
      state_ = kText;
      return;
    case Matcher::Step::kNo:
      break;
  }
  const bool retry = !end_.held().empty();
  arguments(end_.held());
  end_.reset();
  if (retry) return in_raw(c);
  arguments({&c, 1});
}

void TaggedJson::end() {
  switch (state_) {
    case kText:
      content(begin_.held());
      break;
    case kObject:
      if (open_) {
        end_call(false);
      } else {
        release();
      }
      break;
    case kTail:
      end_call(object_.has_arguments());  // the call counts although its end mark is missing
      break;
    case kRaw:
      arguments(end_.held());
      end_call(false);
      break;
  }
  begin_.reset();
  end_.reset();
  state_ = kText;
}

std::string tagged_json_grammar(const GrammarAsk& ask) {
  GrammarText text(ask);
  const std::string begin = text.mark("<tool_call>"), end = text.mark("</tool_call>");
  const std::string call = text.json_calls("arguments");
  const std::string newline = text.literal("\n");
  const std::string body = GrammarText::row({newline, call, newline, end});
  return text.calls({.begin = begin, .body = body, .between = newline});
}

}  // namespace tern::answer
