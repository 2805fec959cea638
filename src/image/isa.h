// Which vector instructions the kernels of this room use.
#pragma once

#include <cstdint>

namespace tern::image {

enum class Isa : uint8_t { kScalar, kAvx2, kAvx512 };

const char* isa_name(Isa isa);  // "scalar", "avx2", "avx512"
Isa detect_isa();               // the best that this machine can run

}  // namespace tern::image
