// How two ways of computing the same logits are compared.
#include "model/verify/checks.h"

#include <gtest/gtest.h>

#include "device/device.h"
#include "model/verify/probes.h"

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

TEST(RoutingFlips, NoMoreThanOfTheReferenceItselfDisturbed) {
  EXPECT_TRUE((RoutingFlips{5, 200, {4, 5, 3}}.statement().ok));
  EXPECT_EQ((RoutingFlips{5, 200, {6, 5, 3}}.statement().detail),
            "5 of 200 token-layers chose other experts (2.50 %, at most 3.00 %)");
  EXPECT_FALSE((RoutingFlips{6, 200, {4, 5, 3}}.statement().ok));
  EXPECT_FALSE((RoutingFlips{}.statement().ok));
}

// Two tokens of four experts, of which two are chosen; the reference has others for the second.
struct Chosen {
  std::vector<float> scores{4, 3, 2, 1, 4, 3, 2, 1};
  std::vector<int32_t> ids{0, 1, 0, 1};
  RoutingRecord reference{2, {{5, {1, 0, 0, 2}}}};
  TensorView scores_view() { return tensor2(scores.data(), DType::kF32, 2, 4); }
  TensorView ids_view() { return tensor2(ids.data(), DType::kI32, 2, 2); }
};

TEST(VerifyProbe, ForcesTheReferencesExpertsAndCountsOthers) {
  const auto device = device::make_cpu_device({});
  Chosen c;
  VerifyProbe probe(**device, VerifyProbe::Mode::kForce, &c.reference);
  probe.router(5, c.scores_view());
  EXPECT_EQ(c.scores, Chosen().scores);
  EXPECT_TRUE(probe.routing(5, c.ids_view()));
  EXPECT_EQ(c.ids, (std::vector<int32_t>{1, 0, 0, 2}));
  EXPECT_EQ(probe.flips(), 1);
  EXPECT_EQ(probe.compared(), 2);
}

TEST(VerifyProbe, DisturbsScoresWhileExpertsAreChosen) {
  const auto device = device::make_cpu_device({});
  Chosen c;
  VerifyProbe probe(**device, VerifyProbe::Mode::kDisturb, &c.reference, 0.1);
  probe.router(5, c.scores_view());
  for (size_t i = 0; i < c.scores.size(); ++i) {
    EXPECT_NE(c.scores[i], Chosen().scores[i]);
    EXPECT_NEAR(c.scores[i], Chosen().scores[i], 1.5F);  // 0.1 of an rms of 2.7, five times
  }
  EXPECT_TRUE(probe.routing(5, c.ids_view()));
  EXPECT_EQ(c.scores, Chosen().scores);
  EXPECT_EQ(probe.flips(), 1);
}

TEST(RoutingRecord, JoinedAsTheRowsOfAStep) {
  const RoutingRecord sequences[] = {{2, {{1, {0, 1, 2, 3, 4, 5}}}}, {2, {{1, {6, 7, 8, 9}}}}};
  const std::vector<int32_t> two{0, 0}, one{0};
  const SequenceRunner::Row rows[] = {{0, two, false}, {1, one, false}};
  EXPECT_EQ(joined(sequences, rows).layers.at(1), (std::vector<int32_t>{0, 1, 2, 3, 6, 7}));
}

}  // namespace
}  // namespace tern::model
