// Apart from quantize.cc, which src/cuda compiles in without the CPU's table of kernels.
#include <algorithm>

#include "kernels/cpu/isa.h"
#include "kernels/cpu/kernel_table.h"
#include "ops/quantize.h"

namespace tern::ops {

void encode_rows(TensorView source, TensorView scales, const ScaleBlocks& blocks, bool e4m3, TensorView codes) {
  const kernels::CodeKernels& kernels = kernels::kernel_table().codes;
  const int64_t k = source.dim[1], group = blocks.cols == 0 ? k : blocks.cols;
  const int is_bf16 = source.dtype == DType::kBF16;
  for (int64_t r = 0; r < source.dim[0]; ++r) {
    const auto* scale = reinterpret_cast<const float*>(scales.row_bytes(r));
    auto* to = reinterpret_cast<uint8_t*>(codes.row_bytes(r));
    for (int64_t k0 = 0; k0 < k; k0 += group, ++scale) {
      const char* x = source.row_bytes(r) + k0 * static_cast<int64_t>(dtype_bytes(source.dtype));
      const int64_t n = std::min(group, k - k0);
      if (e4m3) {
        kernels.encode_e4m3(x, is_bf16, *scale, to + k0, n);
      } else {
        kernels.encode_int(x, is_bf16, *scale, blocks.bound, to + k0, n);
      }
    }
  }
}

}  // namespace tern::ops
