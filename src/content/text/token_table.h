// The bytes of every token id, and the rules by which a decoder joins them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tern::content {

enum class Join : uint8_t {
  kByteLevel,      // bytes are concatenated, the whole is read as UTF-8
  kSentencePiece,  // pieces are text; runs of byte tokens between them are read as UTF-8
};

struct DecodeRules {
  Join join = Join::kByteLevel;
  bool strip_first_space = false;  // one space at the very start of the text is dropped (SentencePiece dummy prefix)
};

enum TokenFlag : uint8_t {
  kTokenPresent = 1,  // the id exists
  kTokenSpecial = 2,  // dropped by skip_special_tokens
  kTokenByte = 4,     // stands for one raw byte (SentencePiece byte fallback)
  kTokenAdded = 8,    // matched as a whole in raw text; its bytes are its text
};

class TokenTable {
 public:
  TokenTable() = default;
  // blob[offsets[id], offsets[id+1]) are the bytes of id; offsets has size() + 1 entries.
  TokenTable(std::string blob, std::vector<uint32_t> offsets, std::vector<uint8_t> flags, DecodeRules rules);

  int32_t size() const { return static_cast<int32_t>(flags_.size()); }
  bool present(int32_t id) const { return flag(id, kTokenPresent); }
  bool special(int32_t id) const { return flag(id, kTokenSpecial); }
  uint8_t flags(int32_t id) const { return id >= 0 && id < size() ? flags_[static_cast<size_t>(id)] : uint8_t{0}; }
  std::string_view bytes(int32_t id) const;  // empty when there is no such id
  const DecodeRules& rules() const { return rules_; }

 private:
  bool flag(int32_t id, uint8_t bit) const { return (flags(id) & bit) != 0; }

  std::string blob_;
  std::vector<uint32_t> offsets_;
  std::vector<uint8_t> flags_;
  DecodeRules rules_;
};

// The state between two tokens of one text: used by the full decode and by streams alike, so both give the same text.
class TokenJoiner {
 public:
  void append(const TokenTable& table, int32_t id, bool skip_special, std::string& out);
  void finish(std::string& out);
  bool pending() const { return pending_size_ > 0; }
  // No token wrote anything yet, so that a first space would be dropped (DecodeRules::strip_first_space).
  bool at_start() const { return at_start_; }
  // Characters that the last append() wrote for the tokens before it: U+FFFD where their character was never finished.
  int earlier() const { return earlier_; }

 private:
  void append_bytes(std::string_view bytes, bool one_per_byte, std::string& out);
  int flush(bool one_per_byte, std::string& out);  // characters written

  char pending_[4] = {};  // the start of a character that is not complete yet
  uint8_t pending_size_ = 0;
  bool one_per_byte_ = false;  // broken bytes give one U+FFFD each (SentencePiece), else one per cut character
  bool at_start_ = true;       // nothing was written yet
  int earlier_ = 0;
};

}  // namespace tern::content
