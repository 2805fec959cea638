#include "content/text/token_table.h"

#include <utility>

#include "base/check.h"

namespace tern::content {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

// Length of the character that starts with this byte; 0 when no character does.
int lead_length(uint8_t b) {
  if (b < 0x80) return 1;
  if (b >= 0xC2 && b <= 0xDF) return 2;
  if (b >= 0xE0 && b <= 0xEF) return 3;
  if (b >= 0xF0 && b <= 0xF4) return 4;
  return 0;
}

// Whether `next` may follow as byte number `at` (1, 2 or 3) of a character that starts with `lead`: no overlong forms,
// no surrogates, nothing above U+10FFFF.
bool may_follow(uint8_t lead, int at, uint8_t next) {
  uint8_t low = 0x80;
  uint8_t high = 0xBF;
  if (at == 1) {
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
  }
  return next >= low && next <= high;
}

}  // namespace

TokenTable::TokenTable(std::string blob, std::vector<uint32_t> offsets, std::vector<uint8_t> flags, DecodeRules rules)
    : blob_(std::move(blob)), offsets_(std::move(offsets)), flags_(std::move(flags)), rules_(rules) {
  TERN_CHECK(offsets_.size() == flags_.size() + 1 && offsets_.back() <= blob_.size());
}

std::string_view TokenTable::bytes(int32_t id) const {
  if (!present(id)) return {};
  const auto at = static_cast<size_t>(id);
  return std::string_view(blob_).substr(offsets_[at], offsets_[at + 1] - offsets_[at]);
}

void TokenJoiner::append(const TokenTable& table, int32_t id, bool skip_special, std::string& out) {
  const uint8_t flags = table.flags(id);
  earlier_ = 0;
  if (!(flags & kTokenPresent) || ((flags & kTokenSpecial) && skip_special)) return;
  std::string_view bytes = table.bytes(id);
  if (table.rules().join == Join::kByteLevel) {
    append_bytes(bytes, false, out);
    at_start_ = false;
    return;
  }
  if (flags & kTokenByte) {
    append_bytes(bytes, true, out);
  } else {
    earlier_ = flush(true, out);
    const bool strip = at_start_ && table.rules().strip_first_space && !(flags & kTokenAdded);
    if (strip && !bytes.empty() && bytes[0] == ' ') bytes.remove_prefix(1);
    append_bytes(bytes, true, out);
  }
  at_start_ = false;
}

void TokenJoiner::finish(std::string& out) {
  flush(one_per_byte_, out);
  at_start_ = true;
}

void TokenJoiner::append_bytes(std::string_view bytes, bool one_per_byte, std::string& out) {
  one_per_byte_ = one_per_byte;
  for (size_t i = 0; i < bytes.size(); ++i) {
    const auto b = static_cast<uint8_t>(bytes[i]);
    if (pending_size_ > 0) {
      const auto lead = static_cast<uint8_t>(pending_[0]);
      if (may_follow(lead, pending_size_, b)) {
        pending_[pending_size_++] = bytes[i];
        if (pending_size_ == lead_length(lead)) {
          out.append(pending_, pending_size_);
          pending_size_ = 0;
        }
        continue;
      }
      const int marks = flush(one_per_byte, out);
      if (i == 0) earlier_ = marks;
    }
    switch (lead_length(b)) {
      case 0:
        out.append(kReplacement);
        break;
      case 1:
        out.push_back(bytes[i]);
        break;
      default:
        pending_[0] = bytes[i];
        pending_size_ = 1;
    }
  }
}

int TokenJoiner::flush(bool one_per_byte, std::string& out) {
  const int marks = one_per_byte ? pending_size_ : (pending_size_ > 0 ? 1 : 0);
  for (int i = 0; i < marks; ++i) out.append(kReplacement);
  pending_size_ = 0;
  return marks;
}

}  // namespace tern::content
