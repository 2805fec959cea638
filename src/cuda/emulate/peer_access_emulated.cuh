// Stands in for peer_access.cuh: ranks are processes that share memory, and a thread that waits lets the others of its
// block run. TERN_EMULATE_LEAVE_OUT=N: every Nth wait does not wait, for tests that want to see it missed.
#pragma once

#include <unistd.h>

#include <cstdlib>

#include "cuda/emulate/emulate.h"

namespace tern::cuda {

inline void put_word(uint4* to, const uint4& v) {
  auto* const halves = reinterpret_cast<uint64_t*>(to);
  __atomic_store_n(halves, uint64_t{v.y} << 32 | v.x, __ATOMIC_RELEASE);
  __atomic_store_n(halves + 1, uint64_t{v.w} << 32 | v.z, __ATOMIC_RELEASE);
}
inline uint4 see_word(const uint4* from) {
  const auto* const halves = reinterpret_cast<const uint64_t*>(from);
  const uint64_t a = __atomic_load_n(halves, __ATOMIC_ACQUIRE), b = __atomic_load_n(halves + 1, __ATOMIC_ACQUIRE);
  return make_uint4(unsigned(a), unsigned(a >> 32), unsigned(b), unsigned(b >> 32));
}
inline void put_flag(uint32_t* to, uint32_t v) { __atomic_store_n(to, v, __ATOMIC_RELEASE); }
inline uint32_t see_flag(const uint32_t* from) { return __atomic_load_n(from, __ATOMIC_ACQUIRE); }
inline void fence_peers() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline float4 see_four(const float* from) { return *reinterpret_cast<const float4*>(from); }

template <class Ready>
void wait_for_peer(const uint32_t* failed, Ready&& ready) {
  static const char* const text = getenv("TERN_EMULATE_LEAVE_OUT");
  static const unsigned left_out = text == nullptr ? 0 : unsigned(atoi(text));
  static unsigned waits = 0;
  unsigned tries = 0;
  const bool leave = left_out != 0 && ++waits % left_out == 0;
  while (!ready() && !leave) {
    if (__atomic_load_n(failed, __ATOMIC_RELAXED) != 0) return;
    emu::pause();
    if (++tries % 64 == 0) usleep(20);  // the other rank may want this core
  }
}

}  // namespace tern::cuda
