// The steps of mma.cuh on a CPU: fragments lie as the PTX manual says for m16n8k16 and ldmatrix.
#pragma once

#include "cuda/emulate/emulate.h"
#include "cuda/ptx/kernel_util.cuh"
namespace tern::cuda {
inline void copy_async(void* s, const void* g, int bytes) {
  if ((uintptr_t)s % 16 || (uintptr_t)g % 16) {
    std::abort();
  }
  if (bytes) std::memcpy(s, g, bytes);
  if (bytes < 16) std::memset((char*)s + bytes, 0, 16 - bytes);
}

inline void copy_commit() {}
template <int k>
inline void copy_wait() {}
inline void ldm(uint32_t* r, int n, const void* row, bool trans) {
  const int lane = threadIdx.x & 31;
  const char* rows[32];
  if ((uintptr_t)row % 16) std::abort();
  emu::warp_slots()[lane] = (uint64_t)(uintptr_t)row;
  emu::sync_warp();
  for (int i = 0; i < 32; ++i) rows[i] = (const char*)emu::warp_slots()[i];
  emu::sync_warp();
  for (int m = 0; m < n; ++m) {
    uint16_t a, b;
    if (!trans) {
      std::memcpy(&a, rows[8 * m + lane / 4] + (lane % 4) * 4, 2);
      std::memcpy(&b, rows[8 * m + lane / 4] + (lane % 4) * 4 + 2, 2);
    } else {
      std::memcpy(&a, rows[8 * m + (lane % 4) * 2] + (lane / 4) * 2, 2);
      std::memcpy(&b, rows[8 * m + (lane % 4) * 2 + 1] + (lane / 4) * 2, 2);
    }
    r[m] = a | (uint32_t)b << 16;
  }
}

inline void load_matrix4(uint32_t (&r)[4], const void* row) { ldm(r, 4, row, false); }
inline void load_matrix2(uint32_t (&r)[2], const void* row) { ldm(r, 2, row, false); }
inline void load_matrix4_transposed(uint32_t (&r)[4], const void* row) { ldm(r, 4, row, true); }
inline void load_matrix2_transposed(uint32_t (&r)[2], const void* row) { ldm(r, 2, row, true); }
struct MmaSlot {
  uint32_t a[4], b[2];
};
extern MmaSlot mma_slots[256][32];  // of all warps of a cluster
inline float bfv(uint32_t w, int hi) { return __uint_as_float(hi ? (w & 0xffff0000u) : (w << 16)); }
inline void mma(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  const int lane = threadIdx.x & 31;
  MmaSlot* s = mma_slots[emu::warp_of_cluster()];
  for (int i = 0; i < 4; ++i) s[lane].a[i] = a[i];
  s[lane].b[0] = b[0], s[lane].b[1] = b[1];
  emu::sync_warp();
  for (int v = 0; v < 4; ++v) {
    const int row = lane / 4 + v / 2 * 8, col = lane % 4 * 2 + v % 2;
    double sum = 0;
    for (int k = 0; k < 16; ++k) {
      // A: reg = (row>=8) + 2*(k>=8); lane = (row%8)*4 + (k%8)/2; half = k%2
      const float x = bfv(s[(row % 8) * 4 + (k % 8) / 2].a[(row >= 8) + 2 * (k >= 8)], k % 2);
      const float y = bfv(s[col * 4 + (k % 8) / 2].b[k >= 8], k % 2);
      sum += (double)x * y;
    }
    d[v] = (float)(d[v] + sum);
  }
  emu::sync_warp();
}
}  // namespace tern::cuda
