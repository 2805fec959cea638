// Loops that do nothing but read, or nothing but multiply and add. Plain structs only, as kernel_table.h.
#pragma once

#include <stdint.h>

namespace tern::kernels {

struct ReadVariant {
  const char* name;
  uint64_t (*run)(const void* data, int64_t bytes);  // bytes: a multiple of 4096; the result keeps the loads alive
};
struct DotVariant {
  const char* name;
  float (*run)(int64_t iterations);
  double flops;  // per iteration
};
struct CeilingSet {
  const ReadVariant* read;
  int reads;
  const DotVariant* bf16;
  int bf16s;
  const DotVariant* f32;
  int f32s;
};

CeilingSet ceilings_avx2();
CeilingSet ceilings_avx512();
CeilingSet ceilings_avx512bf16();  // bf16 only

}  // namespace tern::kernels
