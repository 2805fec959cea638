// Which launch samples: a pure function of the rows, the vocabulary and the device (cases:
// tests/choice/sample_test.cc). What a row's parameters ask for is known to the device only: sample_kernel's own
// branches.
#pragma once

#include <cstdint>

namespace tern::cuda {

// Blocks that share a row: one, or a cluster.
enum class SampleKernel : uint8_t { kBlock = 1, kCluster2 = 2, kCluster3 = 3, kCluster4 = 4, kCluster8 = 8 };

// `rows`: that sample in this launch. `multiprocessors`: for clusters; 0 where the GPU or the build has none.
SampleKernel choose_sample(int rows, int64_t vocab, int multiprocessors);

}  // namespace tern::cuda
