#include "image/positions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

namespace tern::image {
namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;

std::vector<std::array<int32_t, 3>> columns(const Positions& p) {
  const size_t n = p.values.size() / 3;
  std::vector<std::array<int32_t, 3>> out;
  for (size_t i = 0; i < n; i++) out.push_back({p.values[i], p.values[n + i], p.values[2 * n + i]});
  return out;
}

using P = std::array<int32_t, 3>;

TEST(Positions, TextAloneCountsOnAllAxes) {
  const Positions p = make_positions(3, {}, AdvanceRule::kMaxAll);
  EXPECT_THAT(columns(p), ElementsAre(P{0, 0, 0}, P{1, 1, 1}, P{2, 2, 2}));
  EXPECT_EQ(p.delta, 0);
  EXPECT_TRUE(make_positions(0, {}, AdvanceRule::kMaxAll).values.empty());
}

TEST(Positions, PictureStartsWhereTheTextStoodAndTextGoesOnBehindItsLongerSide) {
  const PositionSpan span{.begin = 2, .t = 1, .h = 2, .w = 3};
  for (const AdvanceRule rule : {AdvanceRule::kMaxAll, AdvanceRule::kMaxHw}) {
    const Positions p = make_positions(10, {&span, 1}, rule);
    EXPECT_THAT(columns(p), ElementsAreArray({P{0, 0, 0}, P{1, 1, 1}, P{2, 2, 2}, P{2, 2, 3}, P{2, 2, 4}, P{2, 3, 2},
                                              P{2, 3, 3}, P{2, 3, 4}, P{5, 5, 5}, P{6, 6, 6}}));
    EXPECT_EQ(p.delta, -3);
  }
}

TEST(Positions, PicturesThatTouchAndEndThePrompt) {
  const PositionSpan spans[] = {{.begin = 0, .t = 1, .h = 1, .w = 1}, {.begin = 1, .t = 1, .h = 2, .w = 1}};
  const Positions p = make_positions(3, spans, AdvanceRule::kMaxAll);
  EXPECT_THAT(columns(p), ElementsAre(P{0, 0, 0}, P{1, 1, 1}, P{1, 2, 1}));
  EXPECT_EQ(p.delta, 0);
}

TEST(Positions, LongVideoOfFewCellsSeparatesTheRules) {
  const PositionSpan span{.begin = 1, .t = 5, .h = 1, .w = 2};
  const Positions all = make_positions(12, {&span, 1}, AdvanceRule::kMaxAll);
  EXPECT_EQ(columns(all)[10], (P{5, 1, 2}));
  EXPECT_EQ(columns(all)[11], (P{6, 6, 6}));
  EXPECT_EQ(all.delta, -5);
  const Positions hw = make_positions(12, {&span, 1}, AdvanceRule::kMaxHw);
  EXPECT_EQ(columns(hw)[11], (P{3, 3, 3}));
  EXPECT_EQ(hw.delta, -8);
}

TEST(Positions, TimeStepOfQwen) {
  const PositionSpan span{.begin = 0, .t = 3, .h = 1, .w = 1, .t_step = 1.5};
  const Positions p = make_positions(4, {&span, 1}, AdvanceRule::kMaxAll);
  EXPECT_THAT(columns(p), ElementsAre(P{0, 0, 0}, P{1, 0, 0}, P{3, 0, 0}, P{4, 4, 4}));
}

TEST(PositionsDeathTest, SpansThatOverlapOrLeaveThePromptAreAFaultOfTheCaller) {
  const PositionSpan beyond{.begin = 2, .t = 1, .h = 2, .w = 2};
  EXPECT_DEATH(make_positions(5, {&beyond, 1}, AdvanceRule::kMaxAll), "");
  const PositionSpan overlap[] = {{.begin = 0, .t = 1, .h = 2, .w = 2}, {.begin = 3, .t = 1, .h = 1, .w = 1}};
  EXPECT_DEATH(make_positions(9, overlap, AdvanceRule::kMaxAll), "");
}

}  // namespace
}  // namespace tern::image
