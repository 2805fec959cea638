#include "answer/tools/parts/json_cursor.h"

#include "answer/tools/scanner.h"

namespace tern::answer {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_hex(char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

}  // namespace

void JsonCursor::reset() {
  state_ = kValue;
  begun_ = false;
  key_ = false;
  depth_.clear();
}

JsonCursor::Step JsonCursor::end_value() {
  if (depth_.empty()) return Step::kDone;
  state_ = kAfter;
  return Step::kMore;
}

JsonCursor::Step JsonCursor::open_container(bool is_object) {
  if (depth_.size() >= kMaxDepth) return Step::kError;
  depth_.push_back(is_object);
  state_ = is_object ? kKeyOrEnd : kValueOrEnd;
  return Step::kMore;
}

JsonCursor::Step JsonCursor::begin_value(char c) {
  begun_ = true;
  switch (c) {
    case '{':
      return open_container(true);
    case '[':
      return open_container(false);
    case '"':
      key_ = false;
      state_ = kString;
      return Step::kMore;
    case '-':
      state_ = kMinus;
      return Step::kMore;
    case '0':
      state_ = kZero;
      return Step::kMore;
    case 't':
      literal_rest_ = "rue";
      break;
    case 'f':
      literal_rest_ = "alse";
      break;
    case 'n':
      literal_rest_ = "ull";
      break;
    default:
      if (!is_digit(c)) return Step::kError;
      state_ = kInteger;
      return Step::kMore;
  }
  state_ = kLiteral;
  return Step::kMore;
}

JsonCursor::Step JsonCursor::in_string(char c) {
  if (state_ == kHex) {
    if (!is_hex(c)) return Step::kError;
    if (--hex_ == 0) state_ = kString;
    return Step::kMore;
  }
  if (state_ == kEscape) {
    if (c == 'u') {
      hex_ = 4;
      state_ = kHex;
      return Step::kMore;
    }
    state_ = kString;
    switch (c) {
      case '"':
      case '\\':
      case '/':
      case 'b':
      case 'f':
      case 'n':
      case 'r':
      case 't':
        return Step::kMore;
      default:
        return Step::kError;
    }
  }
  if (static_cast<unsigned char>(c) < 0x20) return Step::kError;
  if (c == '\\') {
    state_ = kEscape;
  } else if (c == '"') {
    if (!key_) return end_value();
    state_ = kColon;
  }
  return Step::kMore;
}

// c comes after the number and does not belong to it.
JsonCursor::Step JsonCursor::end_number(char c) {
  if (depth_.empty()) return Step::kDoneBefore;
  state_ = kAfter;
  return step(c);
}

JsonCursor::Step JsonCursor::in_number(char c) {
  const bool exponent = c == 'e' || c == 'E';
  switch (state_) {
    case kMinus:
      if (!is_digit(c)) return Step::kError;
      state_ = c == '0' ? kZero : kInteger;
      return Step::kMore;
    case kZero:
    case kInteger:
      if (is_digit(c)) return state_ == kInteger ? Step::kMore : Step::kError;
      if (c != '.' && !exponent) return end_number(c);
      state_ = c == '.' ? kPoint : kExponentMark;
      return Step::kMore;
    case kPoint:
    case kFraction:
      if (is_digit(c)) {
        state_ = kFraction;
        return Step::kMore;
      }
      if (state_ == kPoint) return Step::kError;
      if (!exponent) return end_number(c);
      state_ = kExponentMark;
      return Step::kMore;
    case kExponentMark:
      if (c == '+' || c == '-') {
        state_ = kESign;
        return Step::kMore;
      }
      [[fallthrough]];
    case kESign:
      if (!is_digit(c)) return Step::kError;
      state_ = kExponent;
      return Step::kMore;
    default:
      return is_digit(c) ? Step::kMore : end_number(c);
  }
}

JsonCursor::Step JsonCursor::after_value(char c) {
  if (is_space(c)) return Step::kMore;
  const bool object = depth_.back();
  if (c == ',') {
    state_ = object ? kKey : kValue;
    return Step::kMore;
  }
  if (c != (object ? '}' : ']')) return Step::kError;
  depth_.pop_back();
  return end_value();
}

JsonCursor::Step JsonCursor::step(char c) {
  switch (state_) {
    case kValue:
      return is_space(c) ? Step::kMore : begin_value(c);
    case kValueOrEnd:
      if (c == ']') return after_value(c);  // an empty array: after_value() closes it
      return is_space(c) ? Step::kMore : begin_value(c);
    case kKeyOrEnd:
      if (c == '}') return after_value(c);  // an empty object
      [[fallthrough]];
    case kKey:
      if (is_space(c)) return Step::kMore;
      if (c != '"') return Step::kError;
      key_ = true;
      state_ = kString;
      return Step::kMore;
    case kColon:
      if (is_space(c)) return Step::kMore;
      if (c != ':') return Step::kError;
      state_ = kValue;
      return Step::kMore;
    case kAfter:
      return after_value(c);
    case kString:
    case kEscape:
    case kHex:
      return in_string(c);
    case kLiteral:
      if (*literal_rest_ != c) return Step::kError;
      return *++literal_rest_ == '\0' ? end_value() : Step::kMore;
    default:
      return in_number(c);
  }
}

}  // namespace tern::answer
