// Time as a value: pure rooms receive it as an argument, others ask here.
#pragma once

#include <chrono>
#include <cstdint>

namespace tern {

// Nanoseconds of a clock that never goes back; only differences mean something.
inline int64_t monotonic_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Seconds since 1970, with fractions.
inline double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace tern
