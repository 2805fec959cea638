// The table of control orders: every order from every state.
#include <gtest/gtest.h>

#include "serve/control/states.h"

namespace tern::serve::control {
namespace {

constexpr State kRunning{}, kPaused{true}, kCleared{true, true}, kNoWeights{true, false, kWeights},
    kNoCache{true, false, kKvCache}, kAllAsleep{true, false, kAllTags};

using enum Step;

struct Row {
  State from;
  Order order;
  uint8_t tags;
  std::vector<Step> steps;
  State to;
  bool refused = false;
};

const Row kRows[] = {
    {kRunning, Order::kPause, 0, {kStop}, kPaused},
    {kPaused, Order::kPause, 0, {}, kPaused},
    {kNoWeights, Order::kPause, 0, {}, kNoWeights},
    {kCleared, Order::kPause, 0, {}, kCleared},

    {kRunning, Order::kResume, 0, {}, kRunning},
    {kPaused, Order::kResume, 0, {kStart}, kRunning},
    {kNoWeights, Order::kResume, 0, {}, kNoWeights, true},
    {kNoCache, Order::kResume, 0, {}, kNoCache, true},
    {kCleared, Order::kResume, 0, {}, kCleared, true},

    {kRunning, Order::kSleep, kAllTags, {kStop, kForget, kGiveCache, kGiveWeights}, kAllAsleep},
    {kRunning, Order::kSleep, kWeights, {kStop, kForget, kGiveWeights}, kNoWeights},
    {kPaused, Order::kSleep, kKvCache, {kStop, kForget, kGiveCache}, kNoCache},
    {kNoCache, Order::kSleep, kAllTags, {kStop, kForget, kGiveWeights}, kAllAsleep},
    {kNoCache, Order::kSleep, kKvCache, {}, kNoCache},
    {kAllAsleep, Order::kSleep, kAllTags, {}, kAllAsleep},
    {kCleared, Order::kSleep, kKvCache, {}, kCleared, true},

    {kRunning, Order::kWakeUp, kAllTags, {}, kRunning},
    {kPaused, Order::kWakeUp, kAllTags, {}, kPaused},
    {kAllAsleep, Order::kWakeUp, kAllTags, {kTakeCache, kReadWeights, kStart}, kRunning},
    {kAllAsleep, Order::kWakeUp, kWeights, {kReadWeights}, kNoCache},
    {kAllAsleep, Order::kWakeUp, kKvCache, {kTakeCache}, kNoWeights},
    {kNoWeights, Order::kWakeUp, kKvCache, {}, kNoWeights},
    {kNoWeights, Order::kWakeUp, kAllTags, {kReadWeights, kStart}, kRunning},
    {kNoCache, Order::kWakeUp, kKvCache, {kTakeCache, kStart}, kRunning},
    {kCleared, Order::kWakeUp, kAllTags, {}, kCleared, true},

    {kRunning, Order::kUpdate, 0, {}, kRunning, true},
    {kPaused, Order::kUpdate, 0, {kForget, kReadWeights}, kPaused},
    {kNoWeights, Order::kUpdate, 0, {kForget, kReadWeights}, kPaused},
    {kNoCache, Order::kUpdate, 0, {kForget, kReadWeights}, kNoCache},
    {kAllAsleep, Order::kUpdate, 0, {kForget, kReadWeights}, kNoCache},
    {kCleared, Order::kUpdate, 0, {kForget, kReadWeights}, kPaused},

    {kRunning, Order::kClear, 0, {kStopCleared, kForget, kClearWeights}, kCleared},
    {kPaused, Order::kClear, 0, {kStopCleared, kForget, kClearWeights}, kCleared},
    {kNoWeights, Order::kClear, 0, {}, kNoWeights, true},
    {kCleared, Order::kClear, 0, {}, kCleared},

    {kRunning, Order::kReload, 0, {}, kRunning},
    {kPaused, Order::kReload, 0, {kForget, kReadWeights}, kPaused},
    {kAllAsleep, Order::kReload, 0, {}, kAllAsleep, true},
    {kCleared, Order::kReload, 0, {kReadWeights, kStart}, kRunning},
};

State end_of(State state, const Decision& decision) {
  for (const Step step : decision.steps) state = after(state, step);
  return state;
}

TEST(ControlStates, EveryOrderFromEveryState) {
  for (const Row& row : kRows) {
    SCOPED_TRACE(&row - kRows);
    const Decision d = decide(row.from, row.order, row.tags);
    EXPECT_EQ(d.steps, row.steps);
    EXPECT_EQ(!d.refusal.empty(), row.refused);
    EXPECT_EQ(d.code, row.refused ? 403 : 200);
    EXPECT_EQ(end_of(row.from, d), row.to);
  }
}

// Said once more, an order changes nothing; and nothing runs without all of its memory, in the middle of an order too.
TEST(ControlStates, RepeatedOrdersAreHarmless) {
  for (const Row& row : kRows) {
    SCOPED_TRACE(&row - kRows);
    const Decision d = decide(row.from, row.order, row.tags);
    if (row.order != Order::kUpdate && row.order != Order::kReload) {
      EXPECT_TRUE(decide(row.to, row.order, row.tags).steps.empty());
    }
    State state = row.from;
    for (const Step step : d.steps) {
      state = after(state, step);
      EXPECT_TRUE(state.paused || !state.shut());
    }
  }
}

TEST(ControlStates, Tags) {
  uint8_t tags = 0;
  for (const auto& [text, want] : {std::pair{"", kAllTags},
                                   {"weight", uint8_t{kWeights}},
                                   {"weights", uint8_t{kWeights}},
                                   {"kv_cache", uint8_t{kKvCache}},
                                   {"kv_cache,weight,kv_cache", kAllTags}}) {
    EXPECT_TRUE(parse_tags(text, tags)) << text;
    EXPECT_EQ(tags, want) << text;
  }
  for (const char* text : {",", "weight,", ",weight", "kv", "weight kv_cache", "weight,,kv_cache"}) {
    EXPECT_FALSE(parse_tags(text, tags)) << text;
  }
}

}  // namespace
}  // namespace tern::serve::control
