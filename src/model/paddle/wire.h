// The wire format of protocol buffers, read field by field. A reader never reads outside its bytes; what does not fit
// ends it.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace tern::model {

class WireReader {
 public:
  explicit WireReader(std::string_view bytes) : bytes_(bytes) {}

  // The next field; false at the end, and at bytes that are no field (then failed()).
  bool next();
  bool failed() const { return failed_; }
  // Of the field that next() has found. A value of another kind than asked for is nothing.
  uint32_t number() const { return number_; }
  std::optional<uint64_t> integer() const;        // a varint
  std::optional<std::string_view> bytes() const;  // a string, a message or packed numbers

 private:
  enum class Kind : uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };
  bool fail();
  bool varint(uint64_t& value);
  bool skip(uint64_t bytes);

  std::string_view bytes_;
  size_t at_ = 0;
  bool failed_ = false;
  uint32_t number_ = 0;
  Kind kind_ = Kind::kVarint;
  uint64_t value_ = 0;
  std::string_view part_;
};

}  // namespace tern::model
