#include "engine/step/step.h"

#include <algorithm>

#include "base/check.h"
#include "base/memory/prefetch.h"

namespace tern::engine {

Expected<Step> Step::create(const model::BatchLimits& l, const sample::SamplerLimits& sampling,
                            const TensorView& pictures, device::Device& device, const Step* shares) {
  Step s;
  s.limits_ = l;
  s.pictures_ = pictures;
  s.masks = StepMasks(sampling.masks ? static_cast<size_t>(sampling.max_rows) : 0);
  const auto make = [&]<class T>(sample::Staged<T> Step::*array, int64_t n) -> Status {
    TERN_ASSIGN_OR_RETURN(s.*array,
                          sample::Staged<T>::create(n, device, shares == nullptr ? nullptr : &(shares->*array)));
    return {};
  };
  TERN_RETURN_IF_ERROR(make(&Step::token_ids_, l.max_tokens));
  TERN_RETURN_IF_ERROR(make(&Step::token_source_, l.max_tokens));
  TERN_RETURN_IF_ERROR(make(&Step::positions_, int64_t{3} * l.max_tokens));
  TERN_RETURN_IF_ERROR(make(&Step::slot_mapping_, l.max_tokens));
  TERN_RETURN_IF_ERROR(make(&Step::row_start_, l.max_rows + 1));
  TERN_RETURN_IF_ERROR(make(&Step::context_len_, l.max_rows));
  TERN_RETURN_IF_ERROR(make(&Step::block_table_, static_cast<int64_t>(l.max_rows) * l.max_blocks_per_row));
  TERN_RETURN_IF_ERROR(make(&Step::logit_index_, l.max_logit_rows));
  TERN_RETURN_IF_ERROR(make(&Step::picture_row_, pictures.empty() ? 0 : l.max_tokens));
  TERN_RETURN_IF_ERROR(make(&Step::table_changes_, device.own_memory() ? 2 * (l.max_rows + kMoreChanges) : 0));
  TERN_ASSIGN_OR_RETURN(s.sampling,
                        sample::SamplingBatch::create(sampling, device, shares ? &shares->sampling : nullptr));
  const auto rows = static_cast<size_t>(l.max_rows);
  s.known_.resize(rows);
  if (device.own_memory()) s.sent_table_ = shares ? shares->sent_table_ : std::make_shared<std::vector<SentRow>>(rows);
  s.row_memory_.resize(rows);
  s.plan.rows.reserve(rows), s.plan.admitted.reserve(rows), s.plan.preempted.reserve(rows);
  return s;
}

void Step::prefetch() const {
  const size_t n = rows.size(), ints = n * sizeof(int32_t);
  prefetch_memory(plan.rows.data(), n * sizeof(sched::PlanRow));
  prefetch_memory(known_.data(), n * sizeof(KnownRow));
  if (sent_table_ != nullptr) prefetch_memory(sent_table_->data(), n * sizeof(SentRow));
  for (int axis = 0; axis < 3; ++axis) prefetch_memory(positions_.host() + int64_t{axis} * limits_.max_tokens, ints);
  prefetch_memory(context_len_.host(), ints);
  prefetch_memory(slot_mapping_.host(), 2 * ints);
  sampling.prefetch(static_cast<int>(n));
}

void Step::begin() {
  straight_ = std::min({straight_, batch.rows, batch.tokens, batch.logit_rows});  // padding comes after them
  TERN_CHECK(plan.rows.size() <= row_memory_.size());
  rows = std::span(row_memory_).first(plan.rows.size());
  sampling.clear();
  vision.clear();
  batch = {};
  masks.clear();
  status = {};
  replayed = sampled = false;
  row_start_[0] = 0;
  table_columns_ = 0;
  changes_ = 0, first_changed_ = limits_.max_rows, last_changed_ = -1;
}

void Step::add_row(const sched::PlanRow& row, const RowSource& source) {
  const int r = batch.rows++, begin = batch.tokens, count = row.count, context = row.first + count;
  const int used = (context + source.block_size - 1) / source.block_size;
  TERN_CHECK(r < limits_.max_rows && begin + count <= limits_.max_tokens);
  straight_ = std::min(straight_, r);
  known_[static_cast<size_t>(r)].plain_from = kNever;
  batch.tokens += count;
  row_start_[r + 1] = batch.tokens;
  context_len_[r] = context;
  batch.max_query_len = std::max(batch.max_query_len, count);
  batch.max_context_len = std::max(batch.max_context_len, context);
  table_columns_ = std::max(table_columns_, used);
  const int32_t* table = block_table_.host() + static_cast<int64_t>(r) * limits_.max_blocks_per_row;
  const int32_t last_block = copy_table(r, used, row.table, source.blocks);
  if (sent_table_ != nullptr) change_table(r, used, row.table);
  const int last_begin = (used - 1) * source.block_size;
  const int64_t stride = limits_.max_tokens;
  const int given = source.positions.empty() ? 0 : source.prompt;
  for (int i = 0; i < count; ++i) {
    const int t = begin + i, position = row.first + i;
    const bool in_flight = row.previous_row >= 0 && i == count - 1;
    token_source_[t] = in_flight ? row.previous_row : -1;
    token_ids_[t] = in_flight ? 0 : source.tokens[static_cast<size_t>(position)];
    for (int axis = 0; axis < 3; ++axis) {
      positions_[axis * stride + t] =
          position < given
              ? source.positions[static_cast<size_t>(axis) * static_cast<size_t>(given) + static_cast<size_t>(position)]
              : position + source.rope_delta;
    }
    const int64_t block = position >= last_begin ? last_block : table[position / source.block_size];
    slot_mapping_[t] = block * source.block_size + position % source.block_size;
  }
  if (!pictures_.empty()) std::fill_n(picture_row_.host() + begin, count, -1);
  for (int i = 0; i < row.logit_count; ++i) logit_index_[row.logit_begin + i] = batch.tokens - row.logit_count + i;
  batch.logit_rows += row.logit_count;
}

size_t Step::add_plain_rows(size_t row, std::span<const SlotOwner> owners, int block_size,
                            const sched::Scheduler& scheduler) {
  const auto begin = static_cast<int>(row);
  if (batch.rows != begin || batch.tokens != begin || batch.logit_rows != begin || sampling.count() != begin)
    return row;
  const size_t end = std::min({plan.rows.size(), known_.size(), static_cast<size_t>(limits_.max_tokens)});
  uint32_t processors = 0;
  bool straight = true;
  for (; row < end && know_plain(row, owners, block_size, scheduler); ++row) {
    processors |= known_[row].processors;
    straight &= plan.rows[row].previous_row == static_cast<int>(row);
  }
  if (row == static_cast<size_t>(begin)) return row;
  fill_plain(begin, static_cast<int>(row), block_size);
  fill_straight(begin, static_cast<int>(row), straight);
  const std::span<ops::SampleRow> samples = sampling.add_rows(static_cast<int>(row) - begin, processors);
  for (int r = begin; r < static_cast<int>(row); ++r) {
    const sched::PlanRow& planned = plan.rows[static_cast<size_t>(r)];
    ops::SampleRow& sample = samples[static_cast<size_t>(r - begin)];
    sample = {.logit_row = r, .slot = planned.slot, .position = planned.first + 1};
    sample.generated = planned.first + 1 - known_[static_cast<size_t>(r)].prompt;
  }
  for (int r = begin; (processors & ~sample::kAtOnce) != 0 && r < static_cast<int>(row); ++r) {
    if ((known_[static_cast<size_t>(r)].processors & ~sample::kAtOnce) != 0) sampling.set_late(r);
  }
  return row;
}

// Whether the row is plain; then what is known of it holds for the plan.
bool Step::know_plain(size_t row, std::span<const SlotOwner> owners, int block_size,
                      const sched::Scheduler& scheduler) {
  const sched::PlanRow& planned = plan.rows[row];
  const int r = static_cast<int>(row), position = planned.first;
  if (planned.count != 1 || planned.previous_row < 0 || planned.logit_count != 1) return false;
  KnownRow& known = known_[row];
  if (known.table != planned.table || position < known.plain_from) {
    const SlotOwner& owner = owners[static_cast<size_t>(planned.slot)];
    TERN_CHECK(planned.seq == owner.id && planned.table != 0 && planned.samples);
    if (position < owner.plain_from) return false;
    known.prompt = owner.prompt, known.rope_delta = owner.rope_delta;
    known.plain_from = owner.plain_from, known.processors = owner.processors;
    rows[row] = {.generation = owner.generation, .sample_row = r};
  }
  const int ahead = position - (known.used - 1) * block_size;
  if (known.table != planned.table || ahead < 0 || ahead >= block_size) {
    copy_table(r, position / block_size + 1, planned.table, scheduler.row(row).blocks);
  }
  if (sent_table_ != nullptr) change_table(r, known.used, planned.table);
  return true;
}

void Step::fill_plain(int begin, int end, int block_size) {
  int32_t *const t = positions_.host(), *const h = t + limits_.max_tokens, *const w = h + limits_.max_tokens;
  int32_t* const context = context_len_.host();
  int64_t* const slots = slot_mapping_.host();
  int longest = batch.max_context_len, columns = table_columns_;
  for (int r = begin; r < end; ++r) {
    const KnownRow& known = known_[static_cast<size_t>(r)];
    const int position = plan.rows[static_cast<size_t>(r)].first;
    t[r] = h[r] = w[r] = position + known.rope_delta;
    context[r] = position + 1;
    slots[r] = (int64_t{known.last} - known.used + 1) * block_size + position;
    longest = std::max(longest, position + 1), columns = std::max(columns, known.used);
  }
  batch.rows = batch.tokens = batch.logit_rows = end;
  batch.max_query_len = std::max(batch.max_query_len, 1);
  batch.max_context_len = longest, table_columns_ = columns;
}

// What plain rows have besides: mostly what lies there from the step before.
void Step::fill_straight(int begin, int end, bool straight) {
  for (int r = straight ? std::max(begin, straight_) : begin; r < end; ++r) {
    token_source_[r] = plan.rows[static_cast<size_t>(r)].previous_row;
    token_ids_[r] = 0, row_start_[r + 1] = r + 1, logit_index_[r] = r;
    if (!pictures_.empty()) picture_row_[r] = -1;
  }
  if (!straight) {
    straight_ = std::min(straight_, begin);
  } else if (straight_ >= begin) {
    straight_ = std::max(straight_, end);
  }
}

// Brings a row of the block table up to `used` entries and returns the last.
int32_t Step::copy_table(int row, int used, uint64_t table, std::span<const int32_t> blocks) {
  TERN_CHECK(used <= static_cast<int64_t>(blocks.size()) && used <= limits_.max_blocks_per_row);
  KnownRow& known = known_[static_cast<size_t>(row)];
  int32_t* const entries = block_table_.host() + static_cast<int64_t>(row) * limits_.max_blocks_per_row;
  const bool same = table != 0 && known.table == table;
  if (same && known.used == used) return known.last;
  const int from = same ? std::min(known.used, used) : 0;
  std::copy(blocks.begin() + from, blocks.begin() + used, entries + from);
  known.table = table, known.used = used, known.last = entries[used - 1];
  return known.last;
}

// Notes what the device's row of the block table lacks of `used` entries. More changes than there is room for are only
// counted: the rows are then sent whole.
void Step::change_table(int row, int used, uint64_t table) {
  SentRow& sent = (*sent_table_)[static_cast<size_t>(row)];
  const bool same = table != 0 && sent.table == table;
  if (same && sent.used >= used) return;
  const int begin = row * limits_.max_blocks_per_row, room = static_cast<int>(table_changes_.size() / 2);
  for (int i = same ? sent.used : 0; i < used; ++i, ++changes_) {
    if (changes_ >= room) continue;
    table_changes_[2 * changes_] = begin + i;
    table_changes_[2 * changes_ + 1] = block_table_[begin + i];
  }
  sent.table = table, sent.used = used;
  first_changed_ = std::min(first_changed_, row), last_changed_ = std::max(last_changed_, row);
}

void Step::take_pictures(int token, std::span<const int32_t> taken) {
  TERN_CHECK(!pictures_.empty() && token >= 0 && token + static_cast<int>(taken.size()) <= batch.tokens);
  std::copy(taken.begin(), taken.end(), picture_row_.host() + token);
  batch.has_pictures = true, straight_ = std::min(straight_, token);
}

void Step::set_views(model::Batch& b) const {
  b.token_ids = tensor1(token_ids_.device(), DType::kI32, b.tokens);
  b.token_source = tensor1(token_source_.device(), DType::kI32, b.tokens);
  b.positions = tensor2(positions_.device(), DType::kI32, 3, b.tokens, limits_.max_tokens);
  b.slot_mapping = tensor1(slot_mapping_.device(), DType::kI64, b.tokens);
  b.row_start = tensor1(row_start_.device(), DType::kI32, b.rows + 1);
  b.context_len = tensor1(context_len_.device(), DType::kI32, b.rows);
  b.block_table = tensor2(block_table_.device(), DType::kI32, b.rows, limits_.max_blocks_per_row);
  b.logit_index = tensor1(logit_index_.device(), DType::kI32, b.logit_rows);
  if (pictures_.empty()) return;
  b.picture_row = tensor1(picture_row_.device(), DType::kI32, b.tokens);
  b.pictures = pictures_;
}

void Step::finish() {
  model::Batch& b = batch;
  TERN_CHECK(b.tokens == plan.tokens && b.logit_rows == plan.logit_rows && b.logit_rows <= limits_.max_logit_rows);
  set_views(b);
  sent_tokens_ = b.tokens, sent_rows_ = b.rows, sent_logit_rows_ = b.logit_rows;
}

void Step::pad(const StepShape& shape) {
  const int64_t stride = limits_.max_tokens;
  TERN_CHECK(shape.tokens >= batch.tokens && shape.tokens <= limits_.max_tokens);
  TERN_CHECK(shape.rows >= batch.rows && shape.rows >= batch.logit_rows && shape.rows <= limits_.max_rows &&
             shape.rows <= limits_.max_logit_rows);
  const int64_t more = shape.tokens - batch.tokens;
  std::fill_n(token_ids_.host() + batch.tokens, more, 0);
  std::fill_n(token_source_.host() + batch.tokens, more, -1);
  std::fill_n(slot_mapping_.host() + batch.tokens, more, int64_t{0});
  for (int axis = 0; axis < 3; ++axis) std::fill_n(positions_.host() + axis * stride + batch.tokens, more, 0);
  if (!pictures_.empty()) std::fill_n(picture_row_.host() + batch.tokens, more, -1);
  for (int r = batch.rows; r < shape.rows; ++r) row_start_[r + 1] = batch.tokens, context_len_[r] = 0;
  for (int l = batch.logit_rows; l < shape.rows; ++l) logit_index_[l] = batch.logit_rows > 0 ? logit_index_[0] : 0;
  for (int i = changes_ > changes_of(shape) ? 0 : changes_; i < changes_of(shape); ++i) table_changes_[2 * i] = -1;
  sent_tokens_ = shape.tokens, sent_rows_ = sent_logit_rows_ = shape.rows;
}

model::Batch Step::view(const StepShape& shape, int max_context_len) const {
  model::Batch b;
  b.tokens = shape.tokens, b.rows = b.logit_rows = shape.rows;
  b.max_query_len = shape.decode ? 1 : shape.tokens;
  b.max_context_len = max_context_len;
  b.has_pictures = !pictures_.empty();
  set_views(b);
  return b;
}

void Step::fill_idle(const StepShape& shape) {
  begin();
  pad(shape);
  // One token in each row, the rest in the first.
  const int first = shape.tokens - shape.rows + 1;
  for (int r = 0; r < shape.rows; ++r) {
    row_start_[r + 1] = first + r;
    context_len_[r] = r == 0 ? first : 1;
    logit_index_[r] = first + r - 1;
  }
}

void Step::list_arrays(int tokens, int sequences, int logit_rows, sample::CopyList& list) const {
  token_ids_.upload(tokens, list);
  token_source_.upload(tokens, list);
  positions_.upload_rows(0, tokens, 3, limits_.max_tokens, list);
  slot_mapping_.upload(tokens, list);
  row_start_.upload(sequences + 1, list);
  context_len_.upload(sequences, list);
  logit_index_.upload(logit_rows, list);
  if (!pictures_.empty()) picture_row_.upload(tokens, list);
}

Status Step::upload(device::Device& device, device::Stream stream) const {
  sample::CopyList list;
  list_arrays(sent_tokens_, sent_rows_, sent_logit_rows_, list);
  block_table_.upload_rows(0, table_columns_, batch.rows, limits_.max_blocks_per_row, list);
  sampling.upload(list);
  return list.run(device, stream);
}

TensorView Step::table_changes(const StepShape& shape) const {
  return tensor2(table_changes_.device(), DType::kI32, changes_of(shape), 2);
}

void Step::list_inputs(const StepShape& shape, int samples, sample::CopyList& list) const {
  list_arrays(shape.tokens, shape.rows, shape.rows, list);
  table_changes_.upload(2 * changes_of(shape), list);
  sampling.upload_rows(samples, list);
}

Status Step::upload_rest(device::Device& device, device::Stream stream) const {
  sample::CopyList list;
  if (changes_ > changes_of({sent_tokens_, sent_rows_})) {
    block_table_.upload_rows(first_changed_, table_columns_, last_changed_ + 1 - first_changed_,
                             limits_.max_blocks_per_row, list);
  }
  sampling.upload_requests(list);
  return list.run(device, stream);
}

}  // namespace tern::engine
