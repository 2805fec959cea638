// Slots below a fixed number, the lowest free one first: device arrays stay dense.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

#include "base/check.h"

namespace tern::sched {

class SlotSet {
 public:
  explicit SlotSet(int slots) : words_(static_cast<size_t>((slots + 63) / 64), 0), free_(slots) {
    for (int i = 0; i < slots; ++i) word(i) |= bit(i);
  }
  int free_count() const { return free_; }
  bool is_free(int slot) const { return (words_[static_cast<size_t>(slot) / 64] & bit(slot)) != 0; }
  // The lowest free slot, or -1.
  int take() {
    for (size_t i = 0; i < words_.size(); ++i) {
      if (words_[i] == 0) continue;
      const int slot = static_cast<int>(64 * i) + std::countr_zero(words_[i]);
      words_[i] &= words_[i] - 1;
      --free_;
      return slot;
    }
    return -1;
  }
  void release(int slot) {
    TERN_CHECK(!is_free(slot));
    word(slot) |= bit(slot);
    ++free_;
  }

 private:
  static uint64_t bit(int slot) { return uint64_t{1} << (slot % 64); }
  uint64_t& word(int slot) { return words_[static_cast<size_t>(slot) / 64]; }
  std::vector<uint64_t> words_;
  int free_;
};

}  // namespace tern::sched
