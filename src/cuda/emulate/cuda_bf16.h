#pragma once
#include "base/bf16.h"
struct __nv_bfloat16 {
  uint16_t bits;
};
struct __nv_bfloat162 {
  __nv_bfloat16 x, y;
};
inline float __bfloat162float(__nv_bfloat16 v) { return tern::to_float(tern::bf16{v.bits}); }
inline __nv_bfloat16 __float2bfloat16_rn(float v) { return {tern::to_bf16(v).bits}; }
inline __nv_bfloat162 __floats2bfloat162_rn(float a, float b) {
  return {__float2bfloat16_rn(a), __float2bfloat16_rn(b)};
}
