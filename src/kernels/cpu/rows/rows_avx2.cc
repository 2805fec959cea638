#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/simd_avx2.h"
#include "kernels/cpu/simd_tables.h"
// After V:
#include "kernels/cpu/rows/rows_simd.inc"
#include "kernels/cpu/rows/vision_simd.inc"

namespace tern::kernels {

void fill_rows_avx2(KernelTable* table) {
  fill_rows(table);
  fill_vision(table);
}

}  // namespace tern::kernels
