#include "engine/placement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <random>
#include <vector>

namespace tern::engine {
namespace {

EngineLoad load(int64_t hit, int64_t tokens, int requests, int places = 8, int capacity = 100) {
  return {hit, tokens, requests, places, capacity};
}

TEST(Placement, TableOfCases) {
  const struct {
    const char* why;
    std::vector<EngineLoad> engines;
    int want;
  } cases[] = {
      {"one engine", {load(0, 900, 3)}, 0},
      {"nothing anywhere: the first", {load(0, 0, 0), load(0, 0, 0)}, 0},
      {"no hits: the fewest tokens", {load(0, 300, 1), load(0, 200, 5), load(0, 250, 1)}, 1},
      {"equal tokens: the fewest requests", {load(0, 300, 3), load(0, 300, 2)}, 1},
      {"the longest hit", {load(64, 0, 0), load(128, 0, 0), load(0, 0, 0)}, 1},
      {"equal hits: the fewest tokens", {load(128, 700, 2), load(128, 600, 2)}, 1},
      {"a hit is followed to a busier engine", {load(0, 0, 0), load(512, 2047, 4)}, 1},
      {"but not further than it is worth", {load(0, 0, 0), load(512, 2049, 4)}, 0},
      {"what counts is how much more of the prompt it has", {load(448, 0, 0), load(512, 300, 1)}, 0},
      {"a free place before a hit", {load(0, 5000, 7), load(900, 100, 8)}, 0},
      {"no free place anywhere: the hit", {load(0, 5000, 8), load(900, 5100, 9)}, 1},
      {"one that takes no more comes last", {load(900, 10, 100), load(0, 9000, 99)}, 1},
      {"all take no more: it will be refused", {load(0, 10, 100), load(0, 5, 100)}, 1},
      {"engines of different size", {load(0, 100, 4, 4), load(0, 900, 4, 8)}, 1},
  };
  for (const auto& c : cases) EXPECT_EQ(place_request(c.engines), c.want) << c.why;
}

std::vector<EngineLoad> random_loads(std::mt19937& rng) {
  std::vector<EngineLoad> engines(1 + rng() % 8);
  for (EngineLoad& e : engines) {
    e.places = 1 + static_cast<int>(rng() % 8), e.capacity = e.places + static_cast<int>(rng() % 8);
    e.open_requests = static_cast<int>(rng() % static_cast<unsigned>(e.capacity + 1));
    e.open_tokens = e.open_requests * static_cast<int64_t>(rng() % 1000);
    e.hit_tokens = rng() % 2 ? 0 : 64 * static_cast<int64_t>(rng() % 32);
  }
  return engines;
}

TEST(Placement, WhatHoldsForAllLoads) {
  std::mt19937 rng(11);
  for (int round = 0; round < 20000; ++round) {
    std::vector<EngineLoad> engines = random_loads(rng);
    const auto chosen = static_cast<size_t>(place_request(engines));
    ASSERT_LT(chosen, engines.size());
    const EngineLoad c = engines[chosen];
    const auto has_room = [](const EngineLoad& e) { return e.open_requests < e.capacity; };
    const auto has_place = [](const EngineLoad& e) { return e.open_requests < e.places; };
    ASSERT_TRUE(has_room(c) || std::none_of(engines.begin(), engines.end(), has_room));
    ASSERT_TRUE(has_place(c) || std::none_of(engines.begin(), engines.end(), has_place));
    for (const EngineLoad& e : engines) {
      if (has_place(e) != has_place(c) || has_room(e) != has_room(c)) continue;
      // Nobody with less to do is passed over for less than the hit is worth.
      ASSERT_LE(c.open_tokens - e.open_tokens, kHitWorth * (c.hit_tokens - e.hit_tokens));
      ASSERT_TRUE(e.hit_tokens != c.hit_tokens || c.open_tokens <= e.open_tokens);
      ASSERT_TRUE(e.open_tokens != c.open_tokens || c.hit_tokens >= e.hit_tokens);
    }
    // A longer hit, or less to do, leaves the choice as it is; the order of the others says nothing.
    engines[chosen].hit_tokens += 64;
    ASSERT_EQ(static_cast<size_t>(place_request(engines)), chosen);
    engines[chosen].open_tokens -= engines[chosen].open_tokens / 2;
    ASSERT_EQ(static_cast<size_t>(place_request(engines)), chosen);
    std::rotate(engines.begin(), engines.begin() + static_cast<long>(chosen), engines.end());
    ASSERT_EQ(place_request(engines), 0);
  }
}

// Requests with one beginning that a single engine has at first: no engine is left out, and loads stay together.
TEST(Placement, AHotBeginningDoesNotStarveEngines) {
  std::mt19937 rng(12);
  for (const size_t count : {2u, 3u, 8u}) {
    constexpr int64_t kBegin = 1024, kRequest = 1100;
    std::vector<EngineLoad> engines(count, load(0, 0, 0, 256, 4096));
    engines[0].hit_tokens = kBegin;
    std::vector<int> placed(count, 0);
    std::deque<size_t> open;
    for (int i = 0; i < 4000; ++i) {
      const auto e = static_cast<size_t>(place_request(engines));
      ++placed[e];
      engines[e].open_tokens += kRequest, ++engines[e].open_requests;
      engines[e].hit_tokens = kBegin;  // it has computed it by the next time
      open.push_back(e);
      const size_t most = 20 * count;  // running at a time
      if (open.size() > most) {
        const size_t at = rng() % open.size(), gone = open[at];
        open.erase(open.begin() + static_cast<long>(at));
        engines[gone].open_tokens -= kRequest, --engines[gone].open_requests;
      }
      const auto [least, largest] = std::minmax_element(
          engines.begin(), engines.end(), [](const auto& a, const auto& b) { return a.open_tokens < b.open_tokens; });
      ASSERT_LE(largest->open_tokens - least->open_tokens, kHitWorth * kBegin + 20 * kRequest);
    }
    for (const int n : placed) EXPECT_GT(n, 4000 / static_cast<int>(count) / 2) << count << " engines";
  }
}

}  // namespace
}  // namespace tern::engine
