// The limit of reasoning: the state against a search of the whole output, and the ops over rows.
#include "ops/thinking.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

namespace tern::ops {
namespace {

const device::Stream kStream{};

// Marks of few different ids, so that they begin within themselves.
TEST(Thinking, TheMarkIsFoundWhereverItBegins) {
  std::mt19937 rng(3);
  for (int round = 0; round < 3000; ++round) {
    std::vector<int32_t> mark(1 + rng() % 5), forced{7};
    for (int32_t& id : mark) id = static_cast<int32_t>(rng() % 2);
    const ThinkingIds ids{mark.data(), forced.data(), static_cast<int32_t>(mark.size()), 1};
    ThinkingState state;
    std::vector<int32_t> said;
    for (int i = 0; i < 40; ++i) {
      const auto id = static_cast<int32_t>(rng() % 2);
      said.push_back(id);
      advance_thinking(state, ids, id, false);
      const bool over = std::search(said.begin(), said.end(), mark.begin(), mark.end()) != said.end();
      ASSERT_EQ(state.matched < 0, over) << "round " << round << ", token " << i;
    }
  }
}

TEST(Thinking, WhatIsForced) {
  const std::vector<int32_t> mark{1, 2, 3}, forced{9, 1, 2, 3, 8};
  const ThinkingIds ids{mark.data(), forced.data(), 3, 5};
  for (const std::vector<int32_t>& said : {std::vector<int32_t>{}, {5}, {5, 1}, {1, 2}, {1, 1, 2}, {1, 2, 5}}) {
    ThinkingState state;
    for (const int32_t id : said) advance_thinking(state, ids, id, false);
    std::vector<int32_t> end;
    while (state.matched >= 0 && end.size() < 10) {
      end.push_back(next_thinking_id(state, ids));
      advance_thinking(state, ids, end.back(), true);
    }
    const bool begun = !said.empty() && (said.back() == 1 || said.back() == 2);
    const std::vector<int32_t> want = !begun             ? forced
                                      : said.back() == 1 ? std::vector<int32_t>{2, 3}
                                                         : std::vector<int32_t>{3};
    EXPECT_EQ(end, want);
  }
}

TEST(Thinking, RowsThatDidNotAskStayAsTheyAre) {
  constexpr int kRows = 5, kVocab = 12;
  std::vector<float> logits(kRows * kVocab, 0.5f);
  std::vector<SlotParams> params(kRows);
  std::vector<ThinkingState> states(kRows);
  std::vector<int32_t> list(kRows * 4, 0), next(kRows, 4);
  std::vector<SampleRow> rows(kRows);
  for (int i = 0; i < kRows; ++i) {
    params[static_cast<size_t>(i)].thinking_limit = 10;
    params[static_cast<size_t>(i)].thinking_mark = params[static_cast<size_t>(i)].thinking_forced = 1;
    list[static_cast<size_t>(i) * 4] = 4, list[static_cast<size_t>(i) * 4 + 1] = 6;
    SampleRow& r = rows[static_cast<size_t>(i)];
    r.logit_row = r.slot = i, r.generated = 10, r.thinking = 1;
  }
  rows[1].thinking = 0, rows[2].generated = 9, rows[3].logit_row = -1, states[4].matched = -1;
  SlotArrays slots;
  slots.slots = kRows, slots.vocab = kVocab, slots.params = params.data();
  slots.thinking_capacity = 4, slots.thinking_ids = list.data(), slots.thinking_states = states.data();
  const LogitsParams p{tensor2(logits.data(), DType::kF32, kRows, kVocab), rows.data(), kRows, slots};
  ASSERT_TRUE(thinking_force(p, kStream).ok());
  for (int i = 0; i < kRows; ++i) {
    const auto* x = logits.data() + i * kVocab;
    EXPECT_EQ(std::count_if(x, x + kVocab, [](float v) { return std::isinf(v); }), i == 0 ? kVocab - 1 : 0);
  }
  EXPECT_EQ(logits[6], 0.0f);
  ASSERT_TRUE(thinking_advance({p, tensor1(next.data(), DType::kI32, kRows)}, kStream).ok());
  const int32_t want[] = {-1, 0, -1, 0, -1};  // forced; not asked; the mark; no row; over before
  for (int i = 0; i < kRows; ++i) EXPECT_EQ(states[static_cast<size_t>(i)].matched, want[i]) << i;
}

}  // namespace
}  // namespace tern::ops
