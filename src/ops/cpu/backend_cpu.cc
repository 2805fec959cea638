#include "ops/cpu/cpu_ops.h"

namespace tern::ops {

const Backend& cpu_backend() {
  static const Backend backend = [] {
    Backend b;
#define TERN_OP(name, Params) b.name = cpu::name;
#define TERN_OP_HOST(name, Params) b.name = cpu::name;
#define TERN_OP_FUNCTION(Result, name, Parameters) b.name = cpu::name;
#include "ops/op_list.inc"
    return b;
  }();
  return backend;
}

}  // namespace tern::ops
