// What a thread does between two looks at a value that another one is about to write.
#pragma once

namespace tern {

inline void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace tern
