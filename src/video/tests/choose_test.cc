#include <gtest/gtest.h>

#include <cmath>

#include "base/sha256.h"
#include "video/tests/support.h"

namespace tern::video {
namespace {

VideoFacts facts_of(int64_t frames, double rate) {
  VideoFacts facts;
  facts.frames = frames;
  facts.average_fps = rate;
  facts.duration = static_cast<double>(frames) / rate;
  return facts;
}

std::string indices(const Expected<std::vector<ChosenFrame>>& chosen) {
  if (!chosen.ok()) return "<" + chosen.error().message + ">";
  std::string out;
  for (const auto& frame : *chosen) {
    if (!out.empty()) out += ',';
    out += std::to_string(frame.index);
  }
  return out;
}

TEST(ChooseFrames, EqualsNumPy) {
  const auto rows = read_table("choose");
  ASSERT_GE(rows.size(), 300u);
  for (const Row& row : rows) {
    SCOPED_TRACE(row[1] + " frames at " + row[2] + ", fps " + row[3] + ", " + row[7]);
    SamplingRule rule;
    rule.fps = std::stod(row[3]);
    rule.min_frames = std::stoi(row[4]);
    rule.max_frames = std::stoi(row[5]);
    rule.target_frames = std::stoi(row[6]);
    rule.choice = row[7] == "middle" ? FrameChoice::kMiddle : FrameChoice::kLeading;
    const auto chosen = choose_frames(facts_of(std::stoll(row[1]), std::stod(row[2])), rule);
    ASSERT_TRUE(chosen.ok()) << chosen.error().message;
    const std::string text = indices(chosen);
    EXPECT_EQ(std::to_string(chosen->size()), row[8]);
    EXPECT_EQ(sha256_hex(text.data(), text.size()).substr(0, 16), row[9]) << text << " for " << row[10];
  }
}

TEST(ChooseFrames, TimesAndTies) {
  SamplingRule rule;
  rule.min_frames = 1;
  // 2 fps of 25: 0, 12.5, 25, 37.5, ...: halves go to the even index.
  const auto chosen = choose_frames(facts_of(50, 25), rule);
  EXPECT_EQ(indices(chosen), "0,12,25,38");
  EXPECT_DOUBLE_EQ((*chosen)[1].seconds, 12 / 25.0);
  EXPECT_DOUBLE_EQ((*chosen)[3].seconds, 38 / 25.0);
}

TEST(ChooseFrames, RandomStaysInItsPartAndRepeats) {
  SamplingRule rule;
  rule.fps = -1;
  rule.target_frames = 10;
  rule.choice = FrameChoice::kRandom;
  rule.seed = 5;
  const auto facts = facts_of(1000, 25);
  const auto first = choose_frames(facts, rule);
  ASSERT_TRUE(first.ok());
  for (size_t i = 0; i < 10; ++i) EXPECT_EQ((*first)[i].index / 100, static_cast<int64_t>(i));
  EXPECT_EQ(indices(choose_frames(facts, rule)), indices(first));
  rule.seed = 6;
  EXPECT_NE(indices(choose_frames(facts, rule)), indices(first));
}

TEST(ChooseFrames, Qwen) {
  SamplingRule rule;
  rule.qwen = true;
  rule.min_frames = 4;
  rule.max_frames = 12;
  EXPECT_EQ(indices(choose_frames(facts_of(100, 25), rule)), "0,12,25,37,50,62,75,87");  // 8 seconds' worth
  EXPECT_EQ(indices(choose_frames(facts_of(50, 25), rule)), "0,12,25,37");               // 4
  EXPECT_EQ(indices(choose_frames(facts_of(25, 25), rule)), "0,6,12,18");                // 2, clamped up
  EXPECT_EQ(indices(choose_frames(facts_of(3, 25), rule)), "0,1");                       // no more than there are
  EXPECT_EQ(indices(choose_frames(facts_of(1, 25), rule)), "0");
  const auto many = choose_frames(facts_of(1000, 25), rule);
  ASSERT_TRUE(many.ok());
  EXPECT_EQ(many->size(), 12u);
  const auto seven = choose_frames(facts_of(175, 50), rule);  // 7 -> 6 -> 4
  EXPECT_EQ(indices(seven), "0,43,87,131");
}

TEST(ChooseFrames, Refusals) {
  const auto refused = [](const VideoFacts& facts, const SamplingRule& rule) {
    return !choose_frames(facts, rule).ok();
  };
  const auto good = facts_of(100, 25);
  SamplingRule rule;
  EXPECT_FALSE(refused(good, rule));
  rule.target_frames = 8;  // beside fps 2
  EXPECT_TRUE(refused(good, rule));
  rule.fps = 0;
  EXPECT_TRUE(refused(good, rule));
  rule = {};
  rule.fps = -1;
  EXPECT_TRUE(refused(good, rule));
  rule = {};
  rule.fps = std::nan("");
  EXPECT_TRUE(refused(good, rule));
  rule = {};
  rule.min_frames = 200;
  EXPECT_TRUE(refused(good, rule));
  EXPECT_TRUE(refused(facts_of(0, 25), {}));
  EXPECT_TRUE(refused(facts_of(10, 0), {}));
  EXPECT_TRUE(refused(facts_of(10, -1), {}));
  rule = {};
  rule.fps = 1e300;
  rule.max_frames = 2147483647;
  EXPECT_TRUE(refused(good, rule) || choose_frames(good, rule)->size() <= 100);
}

}  // namespace
}  // namespace tern::video
