#include "kernels/cpu/isa.h"

namespace tern::kernels {
namespace {

struct Tables {
  KernelTable table[4] = {};
  Tables() {
    const auto best = static_cast<int>(detect_isa());
    using Fill = void (*)(KernelTable*);
    const Fill fill[4] = {fill_scalar, fill_avx2, fill_avx512, fill_avx512bf16};
    for (int i = 0; i <= best; ++i) {
      if (i > 0) table[i] = table[i - 1];
      fill[i](&table[i]);
      table[i].name = isa_name(static_cast<Isa>(i));
    }
  }
};

const Tables& tables() {
  static const Tables all;
  return all;
}

}  // namespace

const KernelTable& kernel_table() { return tables().table[static_cast<int>(active_isa())]; }

}  // namespace tern::kernels
