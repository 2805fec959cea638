// Instruction sets of CPUs: what this machine can run, and which one everything in this program uses that has code for
// several (kernels, pictures, Base64).
#pragma once

#include <cstdint>
#include <string_view>

#include "base/error.h"

namespace tern {

// Each includes the ones before it.
enum class Isa : uint8_t {
  kScalar,      // plain C++, the oracle
  kAvx2,        // AVX2, FMA, F16C
  kAvx512,      // AVX-512 F, BW, VL, DQ
  kAvx512Bf16,  // and AVX512-BF16
};

const char* isa_name(Isa isa);  // "scalar", "avx2", "avx512", "avx512bf16"
// False when the text is none of the names.
bool parse_isa(std::string_view text, Isa* isa);
// The highest one that the CPU has and the operating system keeps the registers of.
Isa detect_isa();
// The one in use: detect_isa() unless set_isa() chose a lower one.
Isa active_isa();
// Chooses for the whole program (TERN_CPU_ISA, tests). An error when this machine lacks it. Not while ops run.
Status set_isa(Isa isa);

}  // namespace tern
