// cuBLASLt through dlopen. Its choice of algorithm for a shape is asked once and kept, in memory and, when a file is
// named, across runs: the file is keyed by GPU and library version.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cuda/gemm/gemm.h"
#include "cuda/runtime/libraries.h"

namespace tern::cuda {

class BlasLt {
 public:
  // Null when the library is not there (own kernels then do everything) or does not answer. `places`: libraries.h.
  static std::unique_ptr<BlasLt> open(const LibraryPlaces& places, const std::string& gpu,
                                      const std::string& cache_file);
  ~BlasLt();
  // False when the library has no algorithm for this shape; nothing was launched then. One weight. Beside bf16 results
  // only short_bias is looked at. `onto`: adds to what is in g.out, rounded once.
  bool run(const Gemm& g, const void* weight, device::Stream stream, bool onto = false);
  // The sums over either half of k, side by side: [2][rows][n] float32, which stay until the next product here. Null
  // when the library has no algorithm for it. No bias; library_halves_fit() (fits.h).
  const float* run_halves(const Gemm& g, const void* weight, device::Stream stream);
  // Chooses the algorithms of a product that steps may need later; launches nothing, does nothing after settle().
  void meet(const Gemm& g, const void* weight, device::Stream stream);
  // Ends the start: from now on nothing is timed and no memory taken, a product not met yet gets what the library
  // names first. Writes what was learned; false when the file cannot be written. Not on the step path.
  bool settle();
  size_t version() const;

 private:
  struct Impl;
  explicit BlasLt(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tern::cuda
