#include "answer/tools/deepseek_calls.h"

#include "answer/tools/parts/grammar_text.h"

namespace tern::answer {

void DeepseekCalls::in_text(char c) {
  switch (begin_.put(c)) {
    case Matcher::Step::kPart:
      return;
    case Matcher::Step::kFull:
      for (const char m : kDeepseekBegin) hold(m);
      state_ = kBlock;
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

// Not a call after all: what is held becomes content, and c is read as text.
void DeepseekCalls::not_a_call(char c) {
  release();
  block_.reset();
  sep_.reset();
  state_ = kText;
  in_text(c);
}

void DeepseekCalls::in_block(char c) {
  if (is_space(c) && block_.held().empty()) {
    // White space after a call is dropped; before the first call it is held, since it may still be content.
    if (!held_.empty() && !hold(c)) not_a_call(c);
    return;
  }
  const Matcher::Step found = block_.put(c);
  if (found == Matcher::Step::kNo || !hold(c)) return not_a_call(c);
  if (found == Matcher::Step::kPart) return;
  if (block_.index() == 0) {  // 0: a call begins; 1: the block ends
    name_.clear();
    state_ = kHead;
    return;
  }
  if (held_.starts_with(kDeepseekBegin)) {
    release();  // a block without a call
  } else {
    held_.clear();
  }
  state_ = kText;
}

void DeepseekCalls::in_head(char c) {
  const Matcher::Step found = sep_.put(c);
  if (!hold(c)) return not_a_call(c);
  if (found == Matcher::Step::kPart) return;
  if (found == Matcher::Step::kFull) {
    if (form_ == DeepseekForm::kPlain) {
      if (trim_name()) return begin_named();
      release();
      state_ = kText;
      return;
    }
    name_.clear();
    state_ = kName;
    return;
  }
  name_ += sep_.held();
  sep_.reset();
  name_ += c;
  if (name_.size() > kMaxName || c == '<') {
    held_.pop_back();  // not_a_call() reads c again
    not_a_call(c);
  }
}

void DeepseekCalls::in_name(char c) {
  if (c == '\n') return trim_name() ? begin_named() : not_a_call(c);
  if (name_.size() >= kMaxName || c == '<' || !hold(c)) return not_a_call(c);
  name_ += c;
}

// False: there is no name.
bool DeepseekCalls::trim_name() {
  while (!name_.empty() && is_space(name_.back())) name_.pop_back();
  size_t first = 0;
  while (first < name_.size() && is_space(name_[first])) ++first;
  name_.erase(0, first);
  return !name_.empty();
}

void DeepseekCalls::begin_named() {
  begin_call(name_);
  open_ = true;
  cursor_.reset();
  state_ = form_ == DeepseekForm::kCodeFence ? kFence : kArguments;
}

void DeepseekCalls::in_fence(char c) {
  if (is_space(c) && fence_.held().empty()) return;
  if (c == '{' && fence_.held().empty()) {  // no fence
    state_ = kArguments;
    return in_arguments(c);
  }
  switch (fence_.put(c)) {
    case Matcher::Step::kPart:
      return;
    case Matcher::Step::kFull:
      state_ = kArguments;
      return;
    case Matcher::Step::kNo:
      return malformed(c);
  }
}

void DeepseekCalls::in_arguments(char c) {
  if (!cursor_.begun() && is_space(c)) return;
  if (!cursor_.begun() && c != '{') return malformed(c);
  const JsonCursor::Step found = cursor_.step(c);
  if (found == JsonCursor::Step::kError) return malformed(c);
  arguments({&c, 1});
  if (found == JsonCursor::Step::kDone) state_ = kTail;
}

void DeepseekCalls::in_tail(char c) {
  if (is_space(c) && close_.held().empty() && end_.held().empty()) return;
  if (form_ == DeepseekForm::kCodeFence && end_.held().empty()) {
    const Matcher::Step found = close_.put(c);
    if (found != Matcher::Step::kNo) return;
    if (!close_.held().empty()) return malformed(c);
  }
  switch (end_.put(c)) {
    case Matcher::Step::kPart:
      return;
    case Matcher::Step::kFull:
      end_call(true);
      open_ = false;
      state_ = kBlock;
      return;
    case Matcher::Step::kNo:
      return malformed(c);
  }
}

void DeepseekCalls::malformed(char c) {
  for (Matcher* matcher : {&fence_, &close_, &end_}) {
    arguments(matcher->held());
    matcher->reset();
  }
  state_ = kRaw;
  in_raw(c);
}

void DeepseekCalls::in_raw(char c) {
  switch (end_.put(c)) {
    case Matcher::Step::kPart:
      return;
    case Matcher::Step::kFull:
      end_call(false);
      open_ = false;
      state_ = kBlock;
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

void DeepseekCalls::step(char c) {
  switch (state_) {
    case kText:
      return in_text(c);
    case kBlock:
      return in_block(c);
    case kHead:
      return in_head(c);
    case kName:
      return in_name(c);
    case kFence:
      return in_fence(c);
    case kArguments:
      return in_arguments(c);
    case kTail:
      return in_tail(c);
    case kRaw:
      return in_raw(c);
  }
}

void DeepseekCalls::end() {
  if (open_) {
    if (state_ == kRaw) arguments(end_.held());
    // If the arguments are complete, the call counts although its closing marks are missing.
    end_call(state_ == kTail);
  } else {
    content(begin_.held());
    // After a call the answer stopped inside the next mark of the block: that part is dropped.
    if (state_ == kBlock && !held_.starts_with(kDeepseekBegin)) held_.clear();
    release();
  }
  for (Matcher* matcher : {&begin_, &block_, &sep_, &fence_, &close_, &end_}) matcher->reset();
  open_ = false;
  state_ = kText;
}

std::string deepseek_grammar(const GrammarAsk& ask, DeepseekForm form) {
  const bool fenced = form == DeepseekForm::kCodeFence;
  GrammarText text(ask);
  const std::string sep = text.mark(kDeepseekSep), call = text.mark(kDeepseekCall);
  const std::string newline = fenced ? text.literal("\n") : "";
  const std::string named = text.named_calls(fenced ? text.literal("\n```json\n") : sep);
  const std::string head = fenced ? GrammarText::row({call, text.literal("function"), sep}) : call;
  const std::string fence = fenced ? text.literal("\n```") : "";
  text.rule("one", GrammarText::row({head, named, fence, text.mark(kDeepseekCallEnd)}));
  const std::string more = ask.parallel ? GrammarText::group(GrammarText::row({newline, "one"}), "*") : "";
  return text.calls({.begin = text.mark(kDeepseekBegin),
                     .body = GrammarText::row({"one", more, text.mark(kDeepseekEnd)}),
                     .once = true});
}

}  // namespace tern::answer
