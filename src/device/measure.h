// What a device can do at most, as a back-end measures it: the ceilings that benchmarks are compared with.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tern::device {

enum class MeasureKind : uint8_t {
  kRead,       // bytes per second of reading memory and keeping nothing; the best of several ways
  kCopy,       // bytes per second read and written by copies inside the device's memory
  kProduct,    // seconds of one bfloat16 product by the vendor's library, its weights not in any cache
  kLaunch,     // seconds between the starts of empty kernels of one graph
  kRoundTrip,  // seconds from a launch on the host until the host knows that it is done
};

struct MeasureRequest {
  MeasureKind kind = MeasureKind::kRead;
  size_t bytes = size_t{4} << 30;  // kRead, kCopy: far beyond the last cache
  int64_t rows = 0, n = 0, k = 0;  // kProduct: [rows, k] x [n, k]^T, multiples of 8 but for rows
  int repeats = 5;                 // the best counts
};

struct Measured {
  double value = 0;
  const char* variant = "";  // which way was the best; lives as long as the program
};

}  // namespace tern::device
