// How two ways of computing the same logits are compared.
#include "model/verify/checks.h"

#include <gtest/gtest.h>

namespace tern::model {
namespace {

bool tokens_agree(const std::vector<float>& a, const std::vector<float>& b, std::string& detail) {
  VerifyTolerance tolerance;
  tolerance.max = 0.01;
  return agree(a, b, Agreement::kToken, tolerance, {}, detail);
}

TEST(Agree, TheSameTokenWhateverTheRest) {
  std::string detail;
  EXPECT_TRUE(tokens_agree({1, 9, 3}, {8, 10, -3}, detail));
  EXPECT_EQ(detail, "same token");
}

// Two logits may each be off by 1 % of the largest: 0.2 apart at 10.
TEST(Agree, AnotherTokenOnlyWhereBothWereUndecided) {
  std::string detail;
  EXPECT_TRUE(tokens_agree({10.0F, 9.9F, 0}, {9.9F, 10.0F, 0}, detail));
  EXPECT_EQ(detail, "another token, as near as the tolerance");
  EXPECT_FALSE(tokens_agree({10.0F, 9.7F, 0}, {9.9F, 10.0F, 0}, detail));
  EXPECT_EQ(detail, "another token");
  EXPECT_FALSE(tokens_agree({10.0F, 9.9F, 0}, {9.7F, 10.0F, 0}, detail));
  EXPECT_FALSE(tokens_agree({10.0F, 9.9F, 0}, {9.9F, 10.0F}, detail));
}

}  // namespace
}  // namespace tern::model
