// How threads of the CPU wait for each other: a short while with their eyes open, then asleep in the kernel.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <thread>

#include "base/clock.h"

namespace tern::device {

inline void cpu_relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

// Sleeps unless the word has another value by now; may return for no reason.
inline void futex_wait(std::atomic<uint32_t>& word, uint32_t seen) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
}

inline void futex_wake(std::atomic<uint32_t>& word, int count) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE_PRIVATE, count, nullptr, nullptr, 0);
}

// Spins while `done()` is false, at most `ns`. True when it became true. `held_up`, unless null, takes the longest time
// between two looks at the clock, which are about a microsecond apart: much more says that another thread had the core.
template <class F>
bool spin_until(int64_t ns, F&& done, int64_t* held_up = nullptr) {
  int64_t last = monotonic_ns();
  const int64_t end = last + ns;
  for (;;) {
    for (int i = 0; i < 64; ++i) {
      if (done()) return true;
      cpu_relax();
    }
    const int64_t now = monotonic_ns();
    if (held_up != nullptr && now - last > *held_up) *held_up = now - last;
    if (now >= end) return false;
    last = now;
  }
}

}  // namespace tern::device
