#include "answer/tools/xml_calls.h"

namespace tern::answer {

XmlCalls::XmlCalls(Policy policy, IdSource ids, std::shared_ptr<const Tools> tools, const Shape& shape)
    : ToolScanner(policy, std::move(ids)),
      shape_(shape),
      tools_(std::move(tools)),
      pairs_{shape.before_key, shape.arguments_end},
      after_key_{shape.after_key},
      before_value_{shape.before_value},
      value_end_{shape.value_end},
      call_end_{shape.call_end},
      writer_(shape.trim) {}

void XmlCalls::begin_named(std::string_view name) {
  const std::string copy(name);
  parameters_ = find_parameters(*tools_, copy);
  begin_call(copy);
  writer_.reset();
  valid_ = true;
  part_ = kPairs;
}

void XmlCalls::leave(std::string& json) {
  arguments(json);
  json.clear();
}

bool XmlCalls::in_pairs(char c) {
  if (is_space(c) && pairs_.held().empty()) return false;
  switch (pairs_.put(c)) {
    case Matcher::Step::kPart:
      return false;
    case Matcher::Step::kFull:
      break;
    case Matcher::Step::kNo:
      malformed(c);
      return false;
  }
  if (pairs_.index() == 0) {
    key_.clear();
    part_ = kKey;
    return false;
  }
  writer_.close(json_);
  leave(json_);
  return true;
}

void XmlCalls::begin_value() {
  std::string_view key = key_;
  while (!key.empty() && is_space(key.front())) key.remove_prefix(1);
  while (!key.empty() && is_space(key.back())) key.remove_suffix(1);
  const ValueKind kind = parameters_ != nullptr ? value_kind(*parameters_, key, shape_.unknown) : shape_.unknown;
  writer_.begin_value(key, kind, json_);
  leave(json_);
  part_ = kValue;
}

void XmlCalls::in_key(char c) {
  const Matcher::Step found = after_key_.put(c);
  if (found == Matcher::Step::kFull) {
    part_ = kBetween;
    if (shape_.before_value.empty()) begin_value();
    return;
  }
  if (found == Matcher::Step::kPart) return;
  const std::string_view held = after_key_.held();
  const bool retry = !held.empty();
  key_ += held;
  after_key_.reset();
  if (key_.size() >= kMaxKey) return malformed(c);
  if (retry) return in_key(c);
  key_ += c;
}

void XmlCalls::in_value(char c) {
  const Matcher::Step found = value_end_.put(c);
  if (found == Matcher::Step::kPart) return;
  if (found == Matcher::Step::kFull) {
    valid_ = writer_.end_value(json_) && valid_;
    part_ = kPairs;
  } else {
    const std::string_view held = value_end_.held();
    for (const char h : held) writer_.value(h, json_);
    const bool retry = !held.empty();
    value_end_.reset();
    if (retry) return in_value(c);
    writer_.value(c, json_);
  }
  leave(json_);
}

void XmlCalls::in_raw(char c) {
  switch (call_end_.put(c)) {
    case Matcher::Step::kPart:
      return;
    case Matcher::Step::kFull:
      end_call(false);
      part_ = kNone;
      return;
    case Matcher::Step::kNo:
      break;
  }
  const bool retry = !call_end_.held().empty();
  arguments(call_end_.held());
  call_end_.reset();
  if (retry) return in_raw(c);
  arguments({&c, 1});
}

void XmlCalls::malformed(char c) {
  if (part_ == kKey) arguments(key_);
  for (Matcher* matcher : {&pairs_, &after_key_, &before_value_}) {
    arguments(matcher->held());
    matcher->reset();
  }
  part_ = kRaw;
  in_raw(c);
}

bool XmlCalls::consume_argument_byte(char c) {
  switch (part_) {
    case kPairs:
      return in_pairs(c);
    case kKey:
      in_key(c);
      return false;
    case kValue:
      in_value(c);
      return false;
    case kBetween:
      if (is_space(c) && before_value_.held().empty()) return false;
      switch (before_value_.put(c)) {
        case Matcher::Step::kPart:
          return false;
        case Matcher::Step::kFull:
          begin_value();
          return false;
        case Matcher::Step::kNo:
          malformed(c);
          return false;
      }
      return false;
    case kRaw:
      in_raw(c);
      return false;
    case kNone:
      return false;
  }
  return false;
}

void XmlCalls::cut() {
  if (part_ == kRaw) arguments(call_end_.held());
  if (part_ == kValue) {
    for (const char h : value_end_.held()) writer_.value(h, json_);
    writer_.cut(json_);
    leave(json_);
  }
  if (part_ != kNone) end_call(false);
  for (Matcher* matcher : {&pairs_, &after_key_, &before_value_, &value_end_, &call_end_}) matcher->reset();
  part_ = kNone;
}

size_t XmlCalls::held_in_call() const {
  return pairs_.held().size() + after_key_.held().size() + before_value_.held().size() + value_end_.held().size() +
         call_end_.held().size() + (part_ == kKey || part_ == kBetween ? key_.size() : 0) + writer_.held();
}

}  // namespace tern::answer
