// The kernels of the instruction set in use (base/cpu_isa.h).
#pragma once

#include "base/cpu_isa.h"
#include "kernels/cpu/kernel_table.h"

namespace tern::kernels {

const KernelTable& kernel_table();

}  // namespace tern::kernels
