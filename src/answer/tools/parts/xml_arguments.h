// Arguments that come as pairs of key and text, to JSON: a value becomes what the tool's schema says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "answer/tools/parts/json_cursor.h"
#include "answer/tools/scanner.h"

namespace tern::answer {

// What the text of a value is taken for.
enum class ValueKind : uint8_t {
  kText,        // a string
  kTextOrNull,  // a string, but for the text null
  kJson,        // JSON where it is valid (True, False and None too), else a string
};

// Of member `key` of a JSON schema; `unknown` where it says nothing. Follows $ref into the same schema.
ValueKind value_kind(const json::Value& schema, std::string_view key, ValueKind unknown);
const json::Value* find_parameters(const Tools& tools, std::string_view name);  // null: no such tool

// One call's arguments. Every function appends the JSON text that became certain to `out`, with ", " and ": " between.
class XmlArguments {
 public:
  // What is cut off a value's ends: white space, or one newline.
  enum class Trim : uint8_t { kSpace, kNewline };
  static constexpr size_t kMaxSpace = 4096;       // white space held at a value's end, bytes
  static constexpr size_t kMaxValue = 16u << 10;  // JSON is held until its end shows whether it is valid, bytes

  explicit XmlArguments(Trim trim) : trim_(trim) {}

  void reset();
  void begin_value(std::string_view key, ValueKind kind, std::string& out);
  void value(char c, std::string& out);
  // False: a value too long to be held was no valid JSON.
  bool end_value(std::string& out);
  void cut(std::string& out);    // the text ends inside a value: what is held
  void close(std::string& out);  // the closing brace

  size_t held() const { return space_.size() + text_.size(); }

 private:
  enum State : uint8_t {
    kStart,   // nothing of the value has come
    kMaybe,   // text_ may become null
    kString,  // inside quotes
    kHeld,    // text_ may be JSON
    kStream,  // JSON too long to be held
  };

  void put(char c, std::string& out);
  void begin_string(std::string& out);

  Trim trim_;
  ValueKind kind_ = ValueKind::kText;
  State state_ = kStart;
  bool first_ = true;    // no value yet
  bool leading_ = true;  // white space at the value's beginning may be cut off
  bool valid_ = true;    // the JSON so far
  bool done_ = false;    // the JSON value has ended
  std::string space_;    // white space that is cut off if the value ends
  std::string text_;
  JsonCursor cursor_;
};

}  // namespace tern::answer
