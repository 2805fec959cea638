#include "kernels/cpu/kernel_table.h"
#define TERN_CPU_BF16 1  // bf16 conversions by the CPU
#include "kernels/cpu/simd_avx512.h"
#include "kernels/cpu/simd_tables.h"
// After V:
#include "kernels/cpu/rows/rows_simd.inc"
#include "kernels/cpu/rows/vision_simd.inc"

namespace tern::kernels {

void fill_rows_avx512bf16(KernelTable* table) {
  fill_rows(table);
  fill_vision(table);
}

}  // namespace tern::kernels
