// Memory for code that cannot bear to be refused some: libraries that end the process when an allocation fails.
#pragma once

#include <cstddef>

namespace tern {

// Asks the system whether `bytes`, beside what other threads hold so, could be had now. Nothing is kept: the answer is
// as good as a moment, which is enough where address space or a limit is used up. Throws std::bad_alloc.
class MemoryAhead {
 public:
  explicit MemoryAhead(size_t bytes);
  ~MemoryAhead();
  MemoryAhead(const MemoryAhead&) = delete;
  MemoryAhead& operator=(const MemoryAhead&) = delete;

 private:
  size_t bytes_;
};

}  // namespace tern
