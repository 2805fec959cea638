#include "base/cpu_isa.h"

#include <fmt/format.h>

#include <atomic>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace tern {
namespace {

// -1: the best there is.
std::atomic<int> g_forced{-1};

}  // namespace

const char* isa_name(Isa isa) {
  switch (isa) {
    case Isa::kScalar:
      return "scalar";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
    case Isa::kAvx512Bf16:
      return "avx512bf16";
  }
  return "?";
}

bool parse_isa(std::string_view text, Isa* isa) {
  for (const Isa i : {Isa::kScalar, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16}) {
    if (text == isa_name(i)) {
      *isa = i;
      return true;
    }
  }
  return false;
}

#if defined(__x86_64__)
namespace {
uint64_t enabled_registers() {
  uint32_t low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return static_cast<uint64_t>(high) << 32 | low;
}
}  // namespace

Isa detect_isa() {
  uint32_t a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0) return Isa::kScalar;
  const bool osxsave = (c >> 27) & 1, avx = (c >> 28) & 1, fma = (c >> 12) & 1, f16c = (c >> 29) & 1;
  if (!osxsave || !avx || !fma || !f16c) return Isa::kScalar;
  const uint64_t xcr0 = enabled_registers();
  if ((xcr0 & 0x6) != 0x6) return Isa::kScalar;  // xmm and ymm
  uint32_t subleaves = 0;
  if (__get_cpuid_count(7, 0, &subleaves, &b, &c, &d) == 0 || ((b >> 5) & 1) == 0) return Isa::kScalar;
  const uint32_t avx512 = 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31;       // F, DQ, BW, VL
  if ((b & avx512) != avx512 || (xcr0 & 0xe0) != 0xe0) return Isa::kAvx2;  // opmask, zmm
  if (subleaves < 1 || __get_cpuid_count(7, 1, &a, &b, &c, &d) == 0 || ((a >> 5) & 1) == 0) return Isa::kAvx512;
  return Isa::kAvx512Bf16;
}
#else
Isa detect_isa() { return Isa::kScalar; }
#endif

Isa active_isa() {
  static const Isa best = detect_isa();
  const int forced = g_forced.load(std::memory_order_relaxed);
  return forced < 0 ? best : static_cast<Isa>(forced);
}

Status set_isa(Isa isa) {
  if (isa > detect_isa()) {
    return make_error(ErrorCode::kUnsupported,
                      fmt::format("this machine has no {}; its best is {}", isa_name(isa), isa_name(detect_isa())),
                      "TERN_CPU_ISA");
  }
  g_forced.store(static_cast<int>(isa), std::memory_order_relaxed);
  return {};
}

}  // namespace tern
