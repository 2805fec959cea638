#include "model/paddle/wire.h"

namespace tern::model {

bool WireReader::fail() {
  failed_ = true;
  at_ = bytes_.size();
  return false;
}

bool WireReader::varint(uint64_t& value) {
  value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    if (at_ == bytes_.size()) return false;
    const auto byte = static_cast<uint8_t>(bytes_[at_++]);
    // The tenth byte holds one bit.
    if (shift == 63 && byte > 1) return false;
    value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return true;
  }
  return false;
}

bool WireReader::skip(uint64_t bytes) {
  if (bytes > bytes_.size() - at_) return false;
  part_ = bytes_.substr(at_, bytes);
  at_ += bytes;
  return true;
}

bool WireReader::next() {
  if (failed_ || at_ == bytes_.size()) return false;
  uint64_t tag = 0;
  if (!varint(tag) || tag >> 3 == 0 || tag >> 3 > 0x1fffffff) return fail();
  number_ = static_cast<uint32_t>(tag >> 3);
  kind_ = static_cast<Kind>(tag & 7);
  uint64_t length = 0;
  switch (kind_) {
    case Kind::kVarint:
      return varint(value_) || fail();
    case Kind::kFixed64:
      return skip(8) || fail();
    case Kind::kFixed32:
      return skip(4) || fail();
    case Kind::kBytes:
      return (varint(length) && skip(length)) || fail();
  }
  return fail();  // groups, which no file of Paddle has
}

std::optional<uint64_t> WireReader::integer() const {
  return kind_ == Kind::kVarint ? std::optional(value_) : std::nullopt;
}

std::optional<std::string_view> WireReader::bytes() const {
  return kind_ == Kind::kBytes ? std::optional(part_) : std::nullopt;
}

}  // namespace tern::model
