// A call written as one JSON object: {"name": "f", "arguments": {...}}.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "answer/tools/parts/json_cursor.h"

namespace tern::answer {

// Reads the object byte by byte. Keys may come in any order, with unknown keys between. At most kMaxHeader bytes may
// precede the name, so arguments before the name must be short.
class CallObject {
 public:
  static constexpr size_t kMaxHeader = 8192;
  enum class Step : uint8_t {
    kMore,
    kEnd,    // this byte closes the object
    kError,  // this byte cannot stand here, or the name comes too late
  };
  // wait_for_arguments: an object counts as a call only after both its name and the start of its arguments were seen.
  // For formats without a mark, in which any JSON object with a member "name" would look like a call.
  explicit CallObject(bool wait_for_arguments = false) : wait_(wait_for_arguments) {}

  Step step(char c);
  void reset();
  // The name is known: from here on the text is a call.
  bool begun() const { return has_name_ && (!wait_ || arguments_seen_); }
  const std::string& name() const { return name_; }
  // Argument bytes read so far, verbatim; the caller clears them after use. Only to be used once the call has begun.
  std::string& arguments() { return arguments_; }
  // The arguments are a whole JSON object.
  bool has_arguments() const { return arguments_done_; }

 private:
  enum State : uint8_t { kOpen, kFirstKey, kKey, kInKey, kColon, kValue, kInName, kInArguments, kInOther, kAfter };

  Step dispatch(char c);  // step() without counting: a number's end passes its byte on to what follows
  Step in_key(char c);
  Step begin_value(char c);
  Step in_value(char c);
  Step value_done();

  bool wait_;
  State state_ = kOpen;
  bool has_name_ = false;
  bool arguments_seen_ = false;
  bool arguments_done_ = false;
  size_t header_ = 0;  // bytes before the call has begun
  JsonCursor cursor_;
  std::string quoted_;  // the key or the name at hand, with its quotes
  std::string name_;
  std::string arguments_;
};

}  // namespace tern::answer
