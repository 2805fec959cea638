#include "cuda/sampling/choice.h"

namespace tern::cuda {

// The largest cluster of which the GPU takes all rows at once. Clusters are of neighbouring multiprocessors: of large
// ones fewer fit than there are multiprocessors for.
SampleKernel choose_sample(int rows, int64_t vocab, int multiprocessors) {
  constexpr int64_t kLeastVocab = 4096;  // of shorter rows the blocks of a cluster would wait more than read
  if (vocab < kLeastVocab || multiprocessors == 0) return SampleKernel::kBlock;
  if (rows * 9 <= multiprocessors) return SampleKernel::kCluster8;
  if (rows * 9 <= 2 * multiprocessors) return SampleKernel::kCluster4;
  if (rows * 10 <= 3 * multiprocessors) return SampleKernel::kCluster3;
  return rows * 2 <= multiprocessors ? SampleKernel::kCluster2 : SampleKernel::kBlock;
}

}  // namespace tern::cuda
