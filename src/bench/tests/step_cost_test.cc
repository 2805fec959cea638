// What a step reads and computes, from the configuration alone.
#include <gtest/gtest.h>

#include "bench/bench.h"

namespace tern::bench {
namespace {

TEST(StepCostTest, CountsTheTableOnce) {
  model::ModelSummary summary;
  summary.vocab_size = 10;
  summary.active_parameters = 1000;  // with a table of 10 x 8, tied
  StepCost cost = step_cost(summary, 8, true, 2);
  EXPECT_DOUBLE_EQ(cost.decode_weight_bytes, 2000);
  EXPECT_DOUBLE_EQ(cost.linear_flops_per_token, 2 * 920);
  cost = step_cost(summary, 8, false, 2);
  EXPECT_DOUBLE_EQ(cost.decode_weight_bytes, 2 * 920);
  EXPECT_DOUBLE_EQ(cost.linear_flops_per_token, 2 * 840);
  EXPECT_DOUBLE_EQ(cost.output_flops, 160);
}

}  // namespace
}  // namespace tern::bench
