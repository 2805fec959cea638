// Where the codes of a cache become bfloat16 pages for prompts on Hopper: behind what these leave in `slots`
// themselves.
#pragma once

#include <algorithm>

#include "cuda/attention/attention_args.h"

namespace tern::cuda {

inline constexpr int64_t kWidenedFrom = int64_t{24} << 20;

// Pages that all long rows have at most.
inline int64_t widened_pages(const AttentionArgs& a) {
  return (a.long_context + int64_t{a.rows} * (a.block_size - 1)) / a.block_size;
}
inline int64_t widened_bytes(const AttentionArgs& a, int heads) {  // of a page
  return int64_t{heads} * a.block_size * (a.dk + a.dv) * 2;
}
inline int64_t widened_table_bytes(const AttentionArgs& a) {
  return (a.rows * widened_pages(a) * 4 + 1023) / 1024 * 1024;
}
// Of how many KV heads at a time there is room; 0: of none.
inline int widened_heads(const AttentionArgs& a) {
  if (a.code == KvCode::kNone || a.long_context <= 0) return 0;
  const int64_t room = kSplitBytes - kWidenedFrom - widened_table_bytes(a);
  if (room <= 0) return 0;
  return static_cast<int>(std::min<int64_t>(a.kv_heads, room / (widened_pages(a) * widened_bytes(a, 1))));
}

}  // namespace tern::cuda
