#include "kernels/cpu/isa.h"

#include <fmt/format.h>

#include <atomic>

namespace tern::kernels {
namespace {

struct Tables {
  KernelTable table[4] = {};
  Tables() {
    const auto best = static_cast<int>(device::detect_isa());
    using Fill = void (*)(KernelTable*);
    const Fill fill[4] = {fill_scalar, fill_avx2, fill_avx512, fill_avx512bf16};
    for (int i = 0; i <= best; ++i) {
      if (i > 0) table[i] = table[i - 1];
      fill[i](&table[i]);
      table[i].name = device::isa_name(static_cast<Isa>(i));
    }
  }
};

const Tables& tables() {
  static const Tables all;
  return all;
}

// -1: the best there is.
std::atomic<int> g_forced{-1};

}  // namespace

Isa active_isa() {
  static const Isa best = device::detect_isa();
  const int forced = g_forced.load(std::memory_order_relaxed);
  return forced < 0 ? best : static_cast<Isa>(forced);
}

const KernelTable& kernel_table() { return tables().table[static_cast<int>(active_isa())]; }

Status set_isa(Isa isa) {
  if (isa > device::detect_isa()) {
    return make_error(ErrorCode::kUnsupported,
                      fmt::format("this machine has no {}; its best is {}", device::isa_name(isa),
                                  device::isa_name(device::detect_isa())),
                      "TERN_CPU_ISA");
  }
  g_forced.store(static_cast<int>(isa), std::memory_order_relaxed);
  return {};
}

}  // namespace tern::kernels
