// What this machine can do at most: measured beside every benchmark, so that its ratio means something on shared hosts,
// whose bandwidth changes from minute to minute.
#pragma once

#include <cstddef>
#include <string>

namespace tern::device {
class ComputePool;
}

namespace tern::kernels {

// The best of several ways to do the same; names say which one it was.
struct Ceilings {
  int threads = 0;
  double read_gbs = 0;     // GB/s (1e9 bytes) of all threads reading memory
  double bf16_gflops = 0;  // 0 when the CPU has no bf16 dot product
  double f32_gflops = 0;
  std::string read_variant, bf16_variant, f32_variant;
  double dot_gflops() const { return bf16_gflops > 0 ? bf16_gflops : f32_gflops; }
};

struct CeilingOptions {
  size_t read_bytes = size_t{1} << 30;  // touched once per page size; must be far beyond the last cache
  int repeats = 3;                      // of every variant; the fastest counts
  double seconds_per_variant = 0.02;    // of the dot products
};
// Reads: {4 KiB, 2 MiB pages} x the loads of every instruction set up to the active one, one or four streams per
// thread, with and without prefetch. Dot products: several widths and counts of sums. Takes about two seconds per GiB.
Ceilings measure_ceilings(device::ComputePool& pool, const CeilingOptions& options = {});

}  // namespace tern::kernels
