#include "serve/kserve/wire.h"

#include <cstdint>
#include <optional>

namespace tern::serve::kserve {
namespace {

enum WireType : uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };  // groups are not of proto3

class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}
  bool empty() const { return rest_.empty(); }

  std::optional<uint64_t> varint() {
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
      const auto byte = static_cast<uint8_t>(rest_.front());
      rest_.remove_prefix(1);
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if ((byte & 0x80) == 0) return value;
    }
    return std::nullopt;
  }
  std::optional<std::string_view> take(uint64_t size) {
    if (size > rest_.size()) return std::nullopt;
    const std::string_view taken = rest_.substr(0, static_cast<size_t>(size));
    rest_.remove_prefix(static_cast<size_t>(size));
    return taken;
  }

 private:
  std::string_view rest_;
};

// Messages within a ModelInferRequest, by the path of field numbers that leads to them.
enum class Kind : uint8_t { kRequest, kInput, kOutput, kEntry, kContents, kLeaf };

Kind inner(Kind kind, uint64_t field) {
  switch (kind) {
    case Kind::kRequest:
      return field == 4 ? Kind::kEntry : field == 5 ? Kind::kInput : field == 6 ? Kind::kOutput : Kind::kLeaf;
    case Kind::kInput:
      return field == 4 ? Kind::kEntry : field == 5 ? Kind::kContents : Kind::kLeaf;
    case Kind::kOutput:
      return field == 2 ? Kind::kEntry : Kind::kLeaf;
    default:
      return Kind::kLeaf;  // an entry's parameter is one object
  }
}

bool count(std::string_view bytes, Kind kind, size_t& left) {
  Reader reader(bytes);
  while (!reader.empty()) {
    if (left-- == 0) {
      left = 0;
      return false;
    }
    const auto tag = reader.varint();
    if (!tag) return false;
    switch (*tag & 7) {
      case kVarint:
        if (!reader.varint()) return false;
        break;
      case kFixed64:
        if (!reader.take(8)) return false;
        break;
      case kFixed32:
        if (!reader.take(4)) return false;
        break;
      case kBytes: {
        const auto size = reader.varint();
        const auto part = size ? reader.take(*size) : std::nullopt;
        if (!part) return false;
        const Kind within = inner(kind, *tag >> 3);
        if (within != Kind::kLeaf && !count(*part, within, left)) return false;
        break;
      }
      default:
        return false;
    }
  }
  return true;
}

}  // namespace

bool few_fields(std::string_view message, size_t most) {
  size_t left = most;
  return count(message, Kind::kRequest, left);
}

}  // namespace tern::serve::kserve
