// Finds marks in text that comes byte by byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string_view>

namespace tern::answer {

// Up to four marks, of which none is the beginning of another. To search text, the first byte of a mark must not occur
// again in it: then a byte that breaks off a mark can only begin a new one, and nothing but the last unfinished mark is
// ever held. A mark like "```json" may be used only where anything else than the mark is an error (deepseek_calls.cc).
class Matcher {
 public:
  static constexpr size_t kMost = 4;
  enum class Step : uint8_t {
    kNo,    // this byte belongs to no mark; held() is what was held before it: release both
    kPart,  // this byte is held
    kFull,  // index() is the mark that this byte completes
  };

  Matcher(std::initializer_list<std::string_view> marks) {
    for (const std::string_view mark : marks) marks_[count_++] = mark;
  }

  // After kNo the caller takes held(), calls reset() and, if something was held, calls put() again with the byte.
  Step put(char c) {
    uint8_t alive = 0;
    for (size_t i = 0; i < count_; ++i) {
      if ((alive_ >> i & 1u) == 0 || marks_[i][size_] != c) continue;
      if (marks_[i].size() == size_ + 1) {
        index_ = i;
        reset();
        return Step::kFull;
      }
      alive = static_cast<uint8_t>(alive | 1u << i);
    }
    if (alive == 0) return Step::kNo;
    alive_ = alive;
    ++size_;
    return Step::kPart;
  }
  void reset() {
    alive_ = 0xff;
    size_ = 0;
  }

  size_t index() const { return index_; }
  // What is held: the beginning of a mark.
  std::string_view held() const {
    for (size_t i = 0; i < count_; ++i) {
      if ((alive_ >> i & 1u) != 0) return marks_[i].substr(0, size_);
    }
    return {};
  }

 private:
  std::string_view marks_[kMost];
  size_t count_ = 0;
  size_t size_ = 0;       // bytes held
  size_t index_ = 0;      // of the last full match
  uint8_t alive_ = 0xff;  // bit i: mark i begins with the bytes held
};

}  // namespace tern::answer
