// e4m3 as a storage type: 1, 4 and 3 bits, bias 7, no infinity; 0x7f and 0xff are NaN, which callers have refused.
#pragma once

#include <cmath>
#include <cstdint>

namespace tern {

inline float from_e4m3(uint8_t code) {
  const int exponent = code >> 3 & 15, mantissa = code & 7;
  const float a = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                                : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
  return (code & 0x80) != 0 ? -a : a;
}

}  // namespace tern
