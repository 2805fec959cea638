#include "base/memory/pages.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <vector>

namespace tern {
namespace {

constexpr size_t kSmallPage = size_t{1} << 12, kHugePage = size_t{1} << 21;
constexpr size_t kKeepBytes = size_t{64} << 20;  // of blocks not in use

// What is mapped for a block. A last huge page that is used by less than a small part is left to small ones.
size_t mapped_bytes(size_t bytes) {
  const size_t whole = (bytes + kHugePage - 1) / kHugePage * kHugePage;
  return whole - bytes <= bytes / 8 ? whole : (bytes + kSmallPage - 1) / kSmallPage * kSmallPage;
}

void* map(size_t bytes) {
  const size_t room = bytes + kHugePage;
  void* mapped = mmap(nullptr, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  auto* begin = static_cast<std::byte*>(mapped);
  const size_t head = (kHugePage - reinterpret_cast<uintptr_t>(begin) % kHugePage) % kHugePage;
  if (head > 0) munmap(begin, head);
  if (head < kHugePage) munmap(begin + head + bytes, room - head - bytes);
  (void)madvise(begin + head, bytes, MADV_HUGEPAGE);  // a kernel without them serves small pages
  return begin + head;
}

class Kept {
 public:
  void* find(size_t bytes) {
    const std::lock_guard lock(mutex_);
    const auto found =
        std::find_if(blocks_.begin(), blocks_.end(), [&](const Block& block) { return block.bytes == bytes; });
    if (found == blocks_.end()) return nullptr;
    void* at = found->at;
    bytes_ -= bytes;
    blocks_.erase(found);
    return at;
  }
  void keep(void* at, size_t bytes) {
    std::vector<Block> rest;
    {
      const std::lock_guard lock(mutex_);
      blocks_.push_back({at, bytes});
      bytes_ += bytes;
      auto end = blocks_.begin();  // the oldest go
      for (; bytes_ > kKeepBytes; ++end) bytes_ -= end->bytes;
      rest.assign(blocks_.begin(), end);
      blocks_.erase(blocks_.begin(), end);
    }
    for (const Block& block : rest) munmap(block.at, block.bytes);
  }

 private:
  struct Block {
    void* at;
    size_t bytes;
  };
  std::mutex mutex_;
  std::vector<Block> blocks_;  // in the order in which they were let go
  size_t bytes_ = 0;
};

// Never destroyed: other static objects may hold blocks.
Kept& kept() {
  static auto* const all = new Kept;
  return *all;
}

// A memory checker sees the ends of malloc's blocks only.
#if defined(__SANITIZE_ADDRESS__)
constexpr bool kChecked = true;
#else
constexpr bool kChecked = false;
#endif

}  // namespace

void* take_pages(size_t bytes) {
  if (kChecked || bytes < kPagesFrom) return std::malloc(std::max<size_t>(bytes, 1));
  if (bytes > SIZE_MAX / 2) return nullptr;
  const size_t mapped = mapped_bytes(bytes);
  void* block = kept().find(mapped);
  return block != nullptr ? block : map(mapped);
}

void give_pages(void* block, size_t bytes) {
  if (block == nullptr) return;
  if (kChecked || bytes < kPagesFrom) return std::free(block);
  kept().keep(block, mapped_bytes(bytes));
}

}  // namespace tern
