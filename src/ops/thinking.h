// The limit of a sequence's reasoning: when its tokens are used up, the ids that end it are forced, one a step, without
// a look from the host (fastdeploy.md 3.10).
#pragma once

#include <cstdint>

#include "ops/logits.h"

namespace tern::ops {

// The ids of a slot that has a limit, in SlotArrays::thinking_ids: the mark that ends reasoning, then what is forced.
struct ThinkingIds {
  const int32_t* mark = nullptr;
  const int32_t* forced = nullptr;
  int32_t mark_count = 0, forced_count = 0;  // at least 1 each
};
constexpr ThinkingIds thinking_ids(const SlotArrays& s, int32_t slot) {
  const SlotParams& p = s.params[slot];
  const int32_t* ids = s.thinking_ids + int64_t{slot} * s.thinking_capacity;
  return {ids, ids + p.thinking_mark, p.thinking_mark, p.thinking_forced};
}

// The id to force. A mark of several ids that the model has begun is continued, not begun again.
constexpr int32_t next_thinking_id(const ThinkingState& state, const ThinkingIds& ids) {
  return state.forced > 0 || state.matched == 0 ? ids.forced[state.forced] : ids.mark[state.matched];
}

// Whether the first `shorter` ids of the mark are the last ones of its first `matched`.
constexpr bool begins_again(const ThinkingIds& ids, int32_t matched, int32_t shorter) {
  for (int32_t i = 0; i < shorter; ++i) {
    if (ids.mark[i] != ids.mark[matched - shorter + i]) return false;
  }
  return true;
}

// The sequence goes on with `id`. `over`: the limit was reached before it.
constexpr void advance_thinking(ThinkingState& state, const ThinkingIds& ids, int32_t id, bool over) {
  if (state.matched < 0) return;
  if (over && (state.forced > 0 || state.matched == 0)) {
    if (++state.forced == ids.forced_count) state.matched = -1;
    return;
  }
  // The longest beginning of the mark that the answer ends with.
  int32_t matched = state.matched;
  while (matched > 0 && ids.mark[matched] != id) {
    int32_t shorter = matched - 1;
    while (shorter > 0 && !begins_again(ids, matched, shorter)) --shorter;
    matched = shorter;
  }
  matched += ids.mark[matched] == id ? 1 : 0;
  state.matched = matched == ids.mark_count ? -1 : matched;
}

// Of rows whose limit is reached: every id but the forced one becomes -inf.
Status thinking_force(const LogitsParams& params, device::Stream stream);
// After sampling. ids: [L] int32, by logit row.
struct ThinkingParams {
  LogitsParams rows;
  TensorView ids;
};
Status thinking_advance(const ThinkingParams& params, device::Stream stream);

}  // namespace tern::ops
