#include "kernels/cpu/kernel_table.h"

namespace tern::kernels {
void fill_avx512(KernelTable*) {}
}  // namespace tern::kernels
