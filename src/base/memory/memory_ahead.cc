#include "base/memory/memory_ahead.h"

#include <sys/mman.h>

#include <atomic>
#include <new>

namespace tern {
namespace {
constexpr size_t kLeast = 4u << 20;  // what an allocator may ask the system for on top
std::atomic<size_t> ahead{0};
}  // namespace

MemoryAhead::MemoryAhead(size_t bytes) : bytes_(bytes) {
  const size_t all = ahead.fetch_add(bytes) + bytes + kLeast;
  void* space = ::mmap(nullptr, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (space == MAP_FAILED) {
    ahead.fetch_sub(bytes);
    throw std::bad_alloc();
  }
  ::munmap(space, all);
}

MemoryAhead::~MemoryAhead() { ahead.fetch_sub(bytes_); }

}  // namespace tern
