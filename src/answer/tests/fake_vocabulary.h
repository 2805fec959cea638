// A vocabulary of bytes and a few marks, for tests.
#pragma once

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "answer/vocabulary.h"

namespace tern::answer {

// Ids below 256 are bytes; 256 + i is mark i; the marks from `control` on are control tokens too.
class FakeVocabulary {
 public:
  explicit FakeVocabulary(std::vector<std::string> marks, size_t control = SIZE_MAX)
      : marks_(std::move(marks)), control_(control) {
    for (size_t i = 0; i < bytes_.size(); ++i) bytes_[i] = static_cast<char>(i);
  }

  Vocabulary view() const {
    Vocabulary out;
    out.mark_id = [this](std::string_view text) -> std::optional<int32_t> {
      const auto found = std::ranges::find(marks_, text);
      if (found == marks_.end()) return std::nullopt;
      return static_cast<int32_t>(256 + (found - marks_.begin()));
    };
    out.bytes = [this](int32_t id) { return bytes(id); };
    out.special = [this](int32_t id) { return id >= 256 && static_cast<size_t>(id - 256) >= control_; };
    return out;
  }

  std::string_view bytes(int32_t id) const {
    if (id < 256) return {&bytes_[static_cast<size_t>(id)], 1};
    return marks_[static_cast<size_t>(id - 256)];
  }

  // Marks as their ids, every other byte as its own.
  std::vector<int32_t> encode(std::string_view text) const {
    std::vector<int32_t> out;
    while (!text.empty()) {
      size_t best = 0, length = 0;
      for (size_t i = 0; i < marks_.size(); ++i) {
        if (marks_[i].size() > length && text.starts_with(marks_[i])) {
          best = i;
          length = marks_[i].size();
        }
      }
      out.push_back(length > 0 ? static_cast<int32_t>(256 + best) : static_cast<unsigned char>(text[0]));
      text.remove_prefix(std::max<size_t>(1, length));
    }
    return out;
  }

 private:
  std::vector<std::string> marks_;
  size_t control_;
  std::array<char, 256> bytes_;
};

}  // namespace tern::answer
