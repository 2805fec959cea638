#include "answer/tools/parts/call_object.h"

#include "answer/tools/scanner.h"
#include "json/json.h"

namespace tern::answer {

void CallObject::reset() {
  const bool wait = wait_;
  *this = CallObject(wait);
}

CallObject::Step CallObject::step(char c) {
  if (!begun() && ++header_ > kMaxHeader) return Step::kError;
  return dispatch(c);
}

CallObject::Step CallObject::dispatch(char c) {
  switch (state_) {
    case kInKey:
      return in_key(c);
    case kValue:
      return is_space(c) ? Step::kMore : begin_value(c);
    case kInName:
    case kInArguments:
    case kInOther:
      return in_value(c);
    default:
      break;
  }
  if (is_space(c)) return Step::kMore;
  switch (state_) {
    case kOpen:
      if (c != '{') return Step::kError;
      state_ = kFirstKey;
      return Step::kMore;
    case kFirstKey:
    case kKey:
      if (c == '}' && state_ == kFirstKey) return Step::kEnd;
      if (c != '"') return Step::kError;
      quoted_.clear();
      cursor_.reset();
      state_ = kInKey;
      return in_key(c);
    case kColon:
      if (c != ':') return Step::kError;
      state_ = kValue;
      return Step::kMore;
    case kAfter:
      if (c == '}') return Step::kEnd;
      if (c != ',') return Step::kError;
      state_ = kKey;
      return Step::kMore;
    default:  // handled above
      return Step::kError;
  }
}

CallObject::Step CallObject::in_key(char c) {
  const JsonCursor::Step step = cursor_.step(c);
  if (step == JsonCursor::Step::kError) return Step::kError;
  if (quoted_.size() < 64) quoted_ += c;  // keep at most 64 bytes: longer keys match neither name nor arguments
  if (step == JsonCursor::Step::kDone) state_ = kColon;
  return Step::kMore;
}

CallObject::Step CallObject::begin_value(char c) {
  cursor_.reset();
  if (quoted_ == "\"name\"" && !has_name_) {
    if (c != '"') return Step::kError;
    quoted_.clear();
    state_ = kInName;
  } else if ((quoted_ == "\"arguments\"" || quoted_ == "\"parameters\"") && !arguments_seen_) {
    if (c != '{') return Step::kError;
    arguments_seen_ = true;
    state_ = kInArguments;
  } else {
    state_ = kInOther;
  }
  return in_value(c);
}

CallObject::Step CallObject::in_value(char c) {
  const JsonCursor::Step step = cursor_.step(c);
  if (step == JsonCursor::Step::kError) return Step::kError;
  if (step == JsonCursor::Step::kDoneBefore) {
    state_ = kAfter;
    return dispatch(c);
  }
  if (state_ == kInName) quoted_ += c;
  if (state_ == kInArguments) arguments_ += c;
  return step == JsonCursor::Step::kDone ? value_done() : Step::kMore;
}

CallObject::Step CallObject::value_done() {
  if (state_ == kInArguments) arguments_done_ = true;
  if (state_ == kInName) {
    const auto name = json::parse(quoted_);  // undoes the escapes
    if (!name.ok() || !name->is_string() || name->as_string().empty()) return Step::kError;
    name_ = std::string(name->as_string());
    has_name_ = true;
  }
  state_ = kAfter;
  return Step::kMore;
}

}  // namespace tern::answer
