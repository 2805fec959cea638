#include "engine/step/plain_rows.h"

#include <algorithm>

#include "base/check.h"
#include "base/memory/prefetch.h"

namespace tern::engine {

void PlainRows::prefetch(size_t rows) const { prefetch_memory(known_.data(), rows * sizeof(Known)); }

void PlainRows::begin(const model::Batch& last) {
  straight_ = std::min({straight_, last.rows, last.tokens, last.logit_rows});
}

void PlainRows::forget(int row) {
  straight_ = std::min(straight_, row);
  known_[static_cast<size_t>(row)].plain_from = kNever;
}

void PlainRows::overwritten(int from) { straight_ = std::min(straight_, from); }

size_t PlainRows::add(size_t row, const Target& to, std::span<const SlotOwner> owners, int block_size,
                      const sched::Scheduler& scheduler) {
  const auto begin = static_cast<int>(row);
  const model::Batch& batch = to.batch;
  if (batch.rows != begin || batch.tokens != begin || batch.logit_rows != begin || to.sampling.count() != begin) {
    return row;
  }
  const size_t end = std::min({to.plan.rows.size(), known_.size(), static_cast<size_t>(to.inputs.stride)});
  uint32_t processors = 0;
  bool straight = true;
  for (; row < end && know(row, to, owners, block_size, scheduler); ++row) {
    processors |= known_[row].processors;
    straight &= to.plan.rows[row].previous_row == static_cast<int>(row);
  }
  const auto next = static_cast<int>(row);
  if (next == begin) return row;
  fill(begin, next, block_size, to);
  fill_straight(begin, next, straight, to);
  sample(begin, next, processors, to);
  return row;
}

// Whether the row is plain; then what is known of it holds for the plan.
bool PlainRows::know(size_t row, const Target& to, std::span<const SlotOwner> owners, int block_size,
                     const sched::Scheduler& scheduler) {
  const sched::PlanRow& planned = to.plan.rows[row];
  const int r = static_cast<int>(row), position = planned.first;
  if (planned.count != 1 || planned.previous_row < 0 || planned.logit_count != 1) return false;
  Known& known = known_[row];
  const BlockTable::Row& blocks = to.table.row(r);
  if (blocks.table != planned.table || position < known.plain_from) {
    const SlotOwner& owner = owners[static_cast<size_t>(planned.slot)];
    TERN_CHECK(planned.seq == owner.id && planned.table != 0 && planned.samples);
    if (position < owner.plain_from) return false;
    known = {owner.prompt, owner.rope_delta, owner.plain_from, owner.processors};
    to.rows[row] = {.generation = owner.generation, .sample_row = r};
  }
  const int ahead = position - (blocks.used - 1) * block_size;
  if (blocks.table != planned.table || ahead < 0 || ahead >= block_size) {
    to.table.set(r, position / block_size + 1, planned.table, scheduler.row(row).blocks);
  }
  to.table.note(r);
  return true;
}

void PlainRows::fill(int begin, int end, int block_size, const Target& to) const {
  const StepInputs& in = to.inputs;
  int32_t *const t = in.positions.host(), *const h = t + in.stride, *const w = h + in.stride;
  int32_t* const context = in.context_len.host();
  int64_t* const slots = in.slot_mapping.host();
  int longest = to.batch.max_context_len, columns = 0;
  for (int r = begin; r < end; ++r) {
    const BlockTable::Row& blocks = to.table.row(r);
    const int position = to.plan.rows[static_cast<size_t>(r)].first;
    t[r] = h[r] = w[r] = position + known_[static_cast<size_t>(r)].rope_delta;
    context[r] = position + 1;
    slots[r] = (int64_t{blocks.last} - blocks.used + 1) * block_size + position;
    longest = std::max(longest, position + 1), columns = std::max(columns, blocks.used);
  }
  to.batch.rows = to.batch.tokens = to.batch.logit_rows = end;
  to.batch.max_query_len = std::max(to.batch.max_query_len, 1);
  to.batch.max_context_len = longest;
  to.table.widen(columns);
}

// What plain rows have besides: mostly what lies there from the step before.
void PlainRows::fill_straight(int begin, int end, bool straight, const Target& to) {
  const StepInputs& in = to.inputs;
  for (int r = straight ? std::max(begin, straight_) : begin; r < end; ++r) {
    in.token_source[r] = to.plan.rows[static_cast<size_t>(r)].previous_row;
    in.token_ids[r] = 0, in.row_start[r + 1] = r + 1, in.logit_index[r] = r;
    if (in.has_pictures) in.picture_row[r] = -1;
  }
  if (!straight) {
    straight_ = std::min(straight_, begin);
  } else if (straight_ >= begin) {
    straight_ = std::max(straight_, end);
  }
}

void PlainRows::sample(int begin, int end, uint32_t processors, const Target& to) const {
  const std::span<ops::SampleRow> samples = to.sampling.add_rows(end - begin, processors);
  for (int r = begin; r < end; ++r) {
    const sched::PlanRow& planned = to.plan.rows[static_cast<size_t>(r)];
    ops::SampleRow& row = samples[static_cast<size_t>(r - begin)];
    row = {.logit_row = r, .slot = planned.slot, .position = planned.first + 1};
    row.generated = planned.first + 1 - known_[static_cast<size_t>(r)].prompt;
  }
  if ((processors & ~sample::kAtOnce) == 0) return;
  for (int r = begin; r < end; ++r) {
    if ((known_[static_cast<size_t>(r)].processors & ~sample::kAtOnce) != 0) to.sampling.set_late(r);
  }
}

}  // namespace tern::engine
