// The scalar reference kernels, by file.
#pragma once

#include "kernels/cpu/kernel_table.h"

namespace tern::kernels {

void fill_rows_ref(KernelTable* table);
void fill_vision_ref(KernelTable* table);
void fill_codes_ref(KernelTable* table);

}  // namespace tern::kernels
