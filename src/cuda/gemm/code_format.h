#pragma once

#include "base/error.h"
#include "cuda/gemm/gemm_args.h"
#include "cuda/runtime/device_facts.h"

namespace tern::ops {
class WeightFormat;
}

namespace tern::cuda {

// A format whose weights are codes (codes/) by its name: wint8, wint4-64, ...; null for other names.
const ops::WeightFormat* find_code_format(const char* name);

// A product with codes that may stand beside a norm, and of how many columns its kernel leaves a sum of squares; 0: it
// has nothing to do with norms.
Status codes_product(const Gemm& g, const void* weight, device::Stream stream);
int codes_norm_width(const Gemm& g, const DeviceFacts& f);

}  // namespace tern::cuda
