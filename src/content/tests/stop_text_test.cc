#include "content/text/stop_text.h"

#include <gtest/gtest.h>

#include <random>

namespace tern::content {
namespace {

struct Outcome {
  std::string text;
  bool stopped = false;
  int index = -1;
};

Outcome feed(StopMatcher& matcher, const std::vector<std::string>& pieces) {
  Outcome run;
  for (const std::string& piece : pieces) {
    auto result = matcher.push(piece);
    run.text += result.text;
    if (result.stopped) {
      run.stopped = true;
      run.index = result.stop_index;
    }
  }
  run.text += matcher.finish();
  return run;
}

TEST(StopMatcher, WithoutStopStringsEverythingPasses) {
  for (const auto& stops : {std::vector<std::string>{}, std::vector<std::string>{""}}) {
    StopMatcher matcher(stops);
    EXPECT_FALSE(matcher.active());
    EXPECT_EQ(matcher.push("abc").text, "abc");
    EXPECT_EQ(matcher.finish(), "");
  }
}

TEST(StopMatcher, FoundAcrossBordersAndCut) {
  StopMatcher matcher({"</end>"});
  const Outcome run = feed(matcher, {"hello <", "/", "en", "d> never sent", "more"});
  EXPECT_EQ(run.text, "hello ");
  EXPECT_TRUE(run.stopped);
  EXPECT_EQ(run.index, 0);
  EXPECT_TRUE(matcher.stopped());
}

TEST(StopMatcher, IncludedWhenAsked) {
  StopMatcher matcher({"STOP"}, true);
  EXPECT_EQ(feed(matcher, {"a ST", "OP b"}).text, "a STOP");
}

TEST(StopMatcher, HoldsBackOnlyWhatMayBecomeAStop) {
  StopMatcher matcher({"abcd", "xy"});
  EXPECT_EQ(matcher.push("zzab").text, "zz");
  EXPECT_EQ(matcher.held(), 2u);
  EXPECT_EQ(matcher.push("c").text, "");
  EXPECT_EQ(matcher.push("e").text, "abce");
  EXPECT_EQ(matcher.push("x").text, "");
  EXPECT_EQ(matcher.finish(), "x");
}

TEST(StopMatcher, OverlappingPrefixes) {
  StopMatcher matcher({"aab"});
  EXPECT_EQ(feed(matcher, {"a", "a", "a", "a", "b", "c"}).text, "aa");
  StopMatcher other({"ababc"});
  EXPECT_EQ(feed(other, {"abab", "abab", "c"}).text, "abab");
}

TEST(StopMatcher, EarliestEndThenLongest) {
  StopMatcher matcher({"d", "bcd", "cd"});
  const Outcome run = feed(matcher, {"abcd"});
  EXPECT_EQ(run.text, "a");
  EXPECT_EQ(run.index, 1);
  StopMatcher first({"abcd", "bc"});
  EXPECT_EQ(feed(first, {"xabcd"}).text, "xa");
}

// Random texts over two letters in random pieces, against a search of the whole text.
TEST(StopMatcher, EqualsASearchOfTheWholeText) {
  std::mt19937 rng(11);
  int hits = 0;
  for (int round = 0; round < 20000; ++round) {
    const auto word = [&](size_t longest) {
      std::string w(rng() % (longest + 1), 'a');
      for (char& c : w) c = rng() % 2 ? 'a' : 'b';
      return w;
    };
    std::vector<std::string> stops(1 + rng() % 3);
    for (auto& s : stops) s = word(5);
    const bool include = rng() % 2 == 0;
    std::string text;
    std::vector<std::string> pieces(rng() % 8);
    for (auto& p : pieces) text += p = word(4);
    size_t best_end = std::string::npos;
    size_t best_size = 0;
    for (const auto& s : stops) {
      if (s.empty()) continue;
      const size_t at = text.find(s);
      if (at == std::string::npos) continue;
      const size_t end = at + s.size();
      if (end < best_end || (end == best_end && s.size() > best_size)) {
        best_end = end;
        best_size = s.size();
      }
    }
    const bool found = best_end != std::string::npos;
    hits += found;
    const std::string want = found ? text.substr(0, include ? best_end : best_end - best_size) : text;
    StopMatcher matcher(stops, include);
    const Outcome run = feed(matcher, pieces);
    ASSERT_EQ(run.text, want) << "round " << round;
    ASSERT_EQ(run.stopped, found);
  }
  EXPECT_GT(hits, 1000);
}

}  // namespace
}  // namespace tern::content
