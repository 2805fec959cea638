#include "answer/reasoning/reasoning.h"

namespace tern::answer {
namespace {

bool space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

Matcher matcher_for(const ReasoningMarks& marks) {
  if (marks.begin && marks.end) return {};
  if (marks.begin) return {marks.format->end};
  if (marks.end) return {marks.format->begin};
  return {marks.format->begin, marks.format->end};
}

}  // namespace

ReasoningScanner::ReasoningScanner(const ReasoningMarks& marks, ReasoningStart start)
    : marks_(marks), matcher_(matcher_for(marks)) {
  switch (start) {
    case ReasoningStart::kOpenable:
      state_ = kHead;
      break;
    case ReasoningStart::kThinking:
      state_ = kThinkHead;
      break;
    default:
      state_ = kAnswer;
  }
}

void ReasoningScanner::put(bool reasoning, std::string_view text) {
  if (text.empty()) return;
  if (out_->empty() || out_->back().reasoning != reasoning) out_->push_back({reasoning, {}});
  out_->back().text += text;
}

// Text of the thoughts or of the answer, whichever is at hand.
void ReasoningScanner::say(std::string_view text) {
  if (text.empty()) return;
  if (thinking()) return put(true, text);
  if (strip_ != Strip::kNothing) {
    size_t skip = 0;
    while (skip < text.size() && (strip_ == Strip::kSpace ? space(text[skip]) : text[skip] == '\n')) ++skip;
    text.remove_prefix(skip);
    if (text.empty()) return;
    strip_ = Strip::kNothing;
  }
  put(false, text);
}

// Something other than white space was said: no begin mark can follow.
void ReasoningScanner::leave_head() {
  state_ = state_ == kHead ? kAnswer : kThinking;
  say(head_);
  head_.clear();
}

// What is held is no mark.
void ReasoningScanner::release() {
  if (state_ == kHead || state_ == kThinkHead) leave_head();
  say(matcher_.held());
  matcher_.reset();
  if (thinking()) tokens_ += waiting_head_ + waiting_mark_;
  waiting_head_ = waiting_mark_ = 0;
  own_said_ = own_said_ || own_head_ || own_mark_;
  own_head_ = own_mark_ = false;
}

void ReasoningScanner::begin_mark() {
  head_.clear();
  waiting_head_ = waiting_mark_ = 0;
  own_said_ = own_head_ = own_mark_ = false;
  state_ = kThinking;
}

void ReasoningScanner::end_mark() {
  if (state_ == kThinkHead) leave_head();  // white space is all that was thought
  tokens_ += waiting_head_ + (own_said_ || own_head_ ? 1 : 0);
  waiting_head_ = waiting_mark_ = 0;
  own_said_ = own_head_ = own_mark_ = false;
  state_ = kAnswer;
  strip_ = marks_.format->after_end;
}

void ReasoningScanner::byte(char c) {
  const bool head = state_ == kHead || state_ == kThinkHead;
  const Matcher::Step step = matcher_.put(c);
  if (step == Matcher::Step::kPart) {
    own_mark_ = true;
    return;
  }
  if (step == Matcher::Step::kFull) {
    const bool begin = !marks_.begin && matcher_.index() == 0;
    if (begin && head) return begin_mark();
    if (!begin && thinking()) return end_mark();
    release();  // a mark where it means nothing is text
    say(begin ? marks_.format->begin : marks_.format->end);
    own_said_ = true;
    return;
  }
  if (!matcher_.held().empty()) {
    release();
    return state_ == kAnswer ? say({&c, 1}) : byte(c);
  }
  if (head && space(c) && head_.size() < kMaxHead) {
    head_ += c;
    own_head_ = true;
    return;
  }
  if (head) release();
  say({&c, 1});
  own_said_ = true;
}

void ReasoningScanner::text(std::string_view piece, bool counts) {
  own_said_ = own_head_ = own_mark_ = false;
  size_t i = 0;
  for (; i < piece.size() && state_ != kAnswer; ++i) {
    if (state_ == kThinking && marks_.end) break;  // only an id ends it
    byte(piece[i]);
  }
  if (i < piece.size()) {
    say(piece.substr(i));
    own_said_ = true;
  }
  if (!thinking() || !counts) return;
  if (own_said_ || (piece.empty() && held() == 0)) {
    ++tokens_;  // an empty piece is the first bytes of a character, whose text comes with the next token
  } else if (own_head_ || (piece.empty() && matcher_.held().empty())) {
    ++waiting_head_;
  } else if (own_mark_ || piece.empty()) {
    ++waiting_mark_;
  }  // else the end of a begin mark
}

void ReasoningScanner::push(int32_t id, std::string_view piece, std::vector<Segment>& out) {
  out_ = &out;
  const bool begin = marks_.begin && id == *marks_.begin && (state_ == kHead || state_ == kThinkHead);
  const bool end = marks_.end && id == *marks_.end && thinking();
  if (!begin && !end) return text(piece, true);
  const std::string_view mark = begin ? marks_.format->begin : marks_.format->end;
  if (piece.ends_with(mark)) piece.remove_suffix(mark.size());
  if (!piece.empty()) text(piece, false);  // the end of an earlier token's character
  if (!matcher_.held().empty()) release();
  own_said_ = own_head_ = own_mark_ = false;
  if (end) return end_mark();
  if (state_ == kHead || state_ == kThinkHead) return begin_mark();
  say(mark);
}

void ReasoningScanner::push_rest(std::string_view piece, std::vector<Segment>& out) {
  out_ = &out;
  text(piece, false);
}

void ReasoningScanner::finish(std::vector<Segment>& out) {
  out_ = &out;
  release();
}

}  // namespace tern::answer
