// Which launch samples.
#include <gtest/gtest.h>

#include "cuda/sampling/choice.h"

namespace tern::cuda::choice_test {
namespace {

struct SampleCase {
  int rows;
  int64_t vocab;
  int h100;  // blocks that share a row, of 132 multiprocessors
};

// clang-format off
constexpr SampleCase kSamples[] = {
    {1, 151936, 8},
    {14, 151936, 8},  // nine blocks a row: large clusters leave multiprocessors idle
    {15, 151936, 4},
    {29, 151936, 4},
    {30, 151936, 3},
    {39, 151936, 3},
    {40, 151936, 2},
    {66, 151936, 2},
    {67, 151936, 1},
    {256, 151936, 1},
    {1, 4096, 8},
    {1, 4095, 1},
};
// clang-format on

TEST(ChooseSample, AsManyBlocksAsTheGpuHasRoomFor) {
  for (const SampleCase& c : kSamples) {
    EXPECT_EQ(static_cast<int>(choose_sample(c.rows, c.vocab, 132)), c.h100) << c.rows << " rows";
    EXPECT_EQ(choose_sample(c.rows, c.vocab, 0), SampleKernel::kBlock) << "a GPU without clusters";
  }
}

}  // namespace
}  // namespace tern::cuda::choice_test
