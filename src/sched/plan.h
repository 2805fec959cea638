// The value that the scheduler gives and everything else follows: what runs in one step.
#pragma once

#include <cstdint>
#include <vector>

#include "base/memory/prefetch.h"

namespace tern::sched {

using SeqId = uint64_t;

// What is kept of a sequence is cold after a long step: loops over the rows of a plan ask for what belongs to the row
// that comes kAhead later.
inline constexpr size_t kAhead = 14;
// Where the next value goes; the vector itself has been asked for before.
inline void prefetch_end(const std::vector<int32_t>& v) { prefetch_memory(v.data() + v.size(), sizeof(int32_t)); }

// One sequence's part of a step: tokens [first, first + count) of the sequence go through the model.
struct PlanRow {
  SeqId seq = 0;
  // Names the blocks that the sequence holds: the same number again means the same ones, with more after them at most.
  // 0: not known.
  uint64_t table = 0;
  int slot = -1;          // index below max_num_seqs, the sequence's own while it runs
  int first = 0;          // absolute position of the first token of the row
  int count = 0;          // tokens; > 1 in prefill chunks
  bool samples = false;   // the row reaches the end of what is known and yields a token (or several, speculating)
  int previous_row = -1;  // >= 0: the row's only input id is what logit row `previous_row` of the step before samples
  int logit_begin = 0;    // the row's logit rows in this step: [logit_begin, logit_begin + logit_count)
  int logit_count = 0;    // prompt log-probs ask for more than one
};

struct Admission {
  SeqId seq = 0;
  int slot = -1;
  int cached_tokens = 0;  // prefix hit
  bool resumed = false;   // was preempted before
};

struct Plan {
  uint64_t step = 0;
  std::vector<PlanRow> rows;  // decode rows and prefill chunks, in running order
  int tokens = 0;             // sum of count
  int logit_rows = 0;
  std::vector<Admission> admitted;  // got a slot in this plan
  std::vector<SeqId> preempted;     // lost blocks and slot in this plan, will be recomputed
  bool empty() const { return rows.empty(); }
  void clear() {
    rows.clear(), admitted.clear(), preempted.clear();
    tokens = logit_rows = 0;
  }
};

}  // namespace tern::sched
