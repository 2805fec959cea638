// Large blocks of memory that are cheap to touch: huge pages where the kernel has them, and blocks that were let go of
// a moment ago. A fresh page of 4 KiB costs a fault of 0.1 to 10 microseconds, depending on what the machine runs in:
// for a picture's patches up to as much as making them.
#pragma once

#include <cstddef>

namespace tern {

// Below this a block is malloc's.
inline constexpr size_t kPagesFrom = size_t{1} << 20;

// `bytes` bytes of any content, aligned for any type; null without memory.
void* take_pages(size_t bytes);
// A block of take_pages(bytes), or null.
void give_pages(void* block, size_t bytes);

}  // namespace tern
