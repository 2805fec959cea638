// The choice of instruction set, made at run time.
#pragma once

#include "base/error.h"
#include "device/cpu_isa.h"
#include "kernels/cpu/kernel_table.h"

namespace tern::kernels {

using device::Isa;

// The kernels in use: of the highest instruction set this machine has, unless set_isa chose one.
const KernelTable& kernel_table();
Isa active_isa();
// Forces an instruction set (tests, TERN_CPU_ISA). An error when this machine lacks it. Not while ops run.
Status set_isa(Isa isa);

}  // namespace tern::kernels
