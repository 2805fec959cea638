#include "kernels/cpu/kernel_table.h"
#define TERN_CPU_BF16 1
#include "kernels/cpu/simd_avx512.h"
// After V:
#include "kernels/cpu/gemm/gemm_simd.inc"
#include "kernels/cpu/simd_tables.h"

namespace tern::kernels {
namespace {

struct Bf16Bf16 {
  using X = uint16_t;
  using W = uint16_t;
  static constexpr int kPerStep = 2;

  template <int MR, int NV>
  static void run(const Block<X, W>& b) {
    V::F sum[MR][NV];
    load_sums(b, sum);
    const X* x = b.x;
    const W* w = b.w;
    for (int64_t k = 0; k < b.ksteps; ++k, x += 2, w += b.ldw) {
      prefetch_step<NV * V::kLanes * 4>(b, k);
      __m512i weight[NV];
#pragma GCC unroll 8
      for (int v = 0; v < NV; ++v) {
        weight[v] = NV == 1 && b.part != 0 ? _mm512_maskz_loadu_epi32(V::first(b.part), w)
                                           : _mm512_loadu_si512(w + 2 * v * V::kLanes);
      }
#pragma GCC unroll 8
      for (int r = 0; r < MR; ++r) {
        int pair;
        __builtin_memcpy(&pair, x + r * b.ldx, sizeof pair);
        const __m512i value = _mm512_set1_epi32(pair);
#pragma GCC unroll 8
        for (int v = 0; v < NV; ++v) {
          sum[r][v] = _mm512_dpbf16_ps(sum[r][v], (__m512bh)value, (__m512bh)weight[v]);
        }
      }
    }
    store_sums(b, sum);
  }
};

}  // namespace

void fill_avx512bf16(KernelTable* t) {
  fill_rows_avx512bf16(t);
  if (__builtin_cpu_supports("avx512vbmi") != 0) fill_codes_avx512vbmi(t);
  t->gemm_bf16 = gemm<Bf16Bf16>;
}

}  // namespace tern::kernels
