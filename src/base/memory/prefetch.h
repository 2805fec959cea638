// Asks the processor to bring memory that will be written into its cache, without waiting for it.
#pragma once

#include <cstddef>

namespace tern {

// The lines of [from, from + bytes); of a range that begins inside a line the last may be left out. Any address is
// allowed.
inline void prefetch_memory(const void* from, size_t bytes) {
  for (size_t i = 0; i < bytes; i += 64) __builtin_prefetch(static_cast<const char*>(from) + i, 1);
}

}  // namespace tern
