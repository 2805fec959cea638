#include "answer/tools/parts/xml_arguments.h"

namespace tern::answer {
namespace {

void escape(char c, std::string& out) {
  constexpr char kHex[] = "0123456789abcdef";
  switch (c) {
    case '"':
      out += "\\\"";
      return;
    case '\\':
      out += "\\\\";
      return;
    case '\n':
      out += "\\n";
      return;
    case '\r':
      out += "\\r";
      return;
    case '\t':
      out += "\\t";
      return;
    default:
      break;
  }
  const auto byte = static_cast<unsigned char>(c);
  if (byte >= 0x20) {
    out += c;
    return;
  }
  out += "\\u00";
  out += kHex[byte >> 4];
  out += kHex[byte & 15];
}

std::string_view python_literal(std::string_view text) {
  if (text == "True") return "true";
  if (text == "False") return "false";
  if (text == "None") return "null";
  return {};
}

}  // namespace

void XmlArguments::reset() { *this = XmlArguments(trim_); }

void XmlArguments::begin_value(std::string_view key, ValueKind kind, std::string& out) {
  out += first_ ? "{" : ", ";
  first_ = false;
  out += '"';
  for (const char c : key) escape(c, out);
  out += "\": ";
  kind_ = kind;
  state_ = kStart;
  leading_ = valid_ = true;
  done_ = false;
  space_.clear();
  text_.clear();
  cursor_.reset();
}

void XmlArguments::value(char c, std::string& out) {
  const bool cut = trim_ == Trim::kSpace ? is_space(c) : c == '\n';
  if (leading_) {
    if (trim_ == Trim::kNewline) leading_ = false;
    if (cut) return;
    leading_ = false;
  }
  if (!cut || (trim_ == Trim::kNewline ? !space_.empty() : space_.size() >= kMaxSpace)) {
    for (const char s : space_) put(s, out);
    space_.clear();
  }
  if (cut) {
    space_ += c;
  } else {
    put(c, out);
  }
}

void XmlArguments::begin_string(std::string& out) {
  out += '"';
  for (const char c : text_) escape(c, out);
  text_.clear();
  state_ = kString;
}

void XmlArguments::put(char c, std::string& out) {
  constexpr std::string_view kNull = "null";
  if (state_ == kStart) {
    state_ = kind_ == ValueKind::kJson ? kHeld : kMaybe;
    if (kind_ == ValueKind::kText) begin_string(out);
  }
  if (state_ == kMaybe) {
    text_ += c;
    if (!kNull.starts_with(text_)) begin_string(out);
    return;
  }
  if (state_ == kString) return escape(c, out);
  if (valid_ && !(done_ && is_space(c))) {
    const JsonCursor::Step step = done_ ? JsonCursor::Step::kError : cursor_.step(c);
    if (step == JsonCursor::Step::kDoneBefore) {
      done_ = true;
      valid_ = is_space(c);
    } else {
      done_ = done_ || step == JsonCursor::Step::kDone;
      valid_ = step != JsonCursor::Step::kError;
    }
  }
  if (state_ == kStream) {
    out += c;
    return;
  }
  text_ += c;
  if (text_.size() < kMaxValue) return;
  if (!valid_) return begin_string(out);
  out += text_;
  text_.clear();
  state_ = kStream;
}

bool XmlArguments::end_value(std::string& out) {
  space_.clear();
  const bool json = valid_ && (done_ || cursor_.may_end());
  if (state_ == kStream) return json;
  if (state_ == kMaybe && text_ == "null") {
    out += text_;
  } else if (state_ == kHeld && (json || !python_literal(text_).empty())) {
    out += json ? std::string_view(text_) : python_literal(text_);
  } else {
    if (state_ != kString) begin_string(out);
    out += '"';
  }
  text_.clear();
  state_ = kStart;
  return true;
}

void XmlArguments::cut(std::string& out) {
  for (const char c : space_) put(c, out);
  space_.clear();
  out += text_;
  text_.clear();
}

void XmlArguments::close(std::string& out) { out += first_ ? "{}" : "}"; }

}  // namespace tern::answer
