// Where a JSON value ends, in text that comes byte by byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tern::answer {

// Checks one JSON value strictly (RFC 8259) and finds its last byte. White space before the value is accepted.
class JsonCursor {
 public:
  static constexpr size_t kMaxDepth = 256;
  enum class Step : uint8_t {
    kMore,        // the value goes on
    kDone,        // this byte ends the value
    kDoneBefore,  // the value ended before this byte (numbers)
    kError,       // this byte cannot stand here
  };
  Step step(char c);
  void reset();
  // Some byte of the value has come.
  bool begun() const { return begun_; }
  // The text so far is a whole value when it ends here (a number has no byte that ends it).
  bool may_end() const {
    return depth_.empty() && (state_ == kInteger || state_ == kZero || state_ == kFraction || state_ == kExponent);
  }

 private:
  enum State : uint8_t {
    kValue,         // a value has to begin
    kValueOrEnd,    // after '[': a value or ']'
    kKeyOrEnd,      // after '{': a key or '}'
    kKey,           // after ',' in an object: a key
    kColon,         // after a key
    kAfter,         // after a value in an object or array
    kString,        // in a string
    kEscape,        // after a backslash
    kHex,           // in the digits of \uXXXX
    kMinus,         // after '-'
    kZero,          // after a leading 0
    kInteger,       // in the digits before '.'
    kPoint,         // after '.'
    kFraction,      // in the digits after '.'
    kExponentMark,  // after 'e'
    kESign,         // after 'e+' or 'e-'
    kExponent,      // in the digits of the exponent
    kLiteral,       // in true, false or null
  };

  Step begin_value(char c);
  Step in_string(char c);
  Step in_number(char c);
  Step after_value(char c);
  Step end_value();         // the byte at hand is the value's last
  Step end_number(char c);  // the byte at hand comes after the number
  Step open_container(bool is_object);

  State state_ = kValue;
  bool begun_ = false;
  bool key_ = false;               // the string at hand is a key
  uint8_t hex_ = 0;                // digits left
  const char* literal_rest_ = "";  // what is still to come of true, false or null
  std::vector<bool> depth_;        // open containers: true for objects
};

}  // namespace tern::answer
