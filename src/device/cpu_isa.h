// Instruction sets of the CPU back-end, and what this machine can run.
#pragma once

#include <cstdint>
#include <string_view>

namespace tern::device {

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

}  // namespace tern::device
