#include "engine/step.h"

#include <algorithm>

#include "base/check.h"

namespace tern::engine {

Expected<Step> Step::create(const model::BatchLimits& l, const sample::SamplerLimits& sampling,
                            const TensorView& pictures, device::Device& device, const Step* twin) {
  Step s;
  s.limits_ = l;
  s.pictures_ = pictures;
  const auto make = [&]<class T>(sample::Staged<T> Step::*array, int64_t n) -> Status {
    TERN_ASSIGN_OR_RETURN(s.*array, sample::Staged<T>::create(n, device, twin == nullptr ? nullptr : &(twin->*array)));
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
  TERN_ASSIGN_OR_RETURN(s.sampling, sample::SamplingBatch::create(sampling, device, twin ? &twin->sampling : nullptr));
  const auto rows = static_cast<size_t>(l.max_rows);
  s.table_rows_.resize(rows);
  if (device.own_memory()) s.sent_table_ = twin ? twin->sent_table_ : std::make_shared<std::vector<TableRow>>(rows);
  s.rows.reserve(rows);
  s.plan.rows.reserve(rows), s.plan.admitted.reserve(rows), s.plan.preempted.reserve(rows), s.plan.moves.reserve(rows);
  return s;
}

void Step::begin() {
  rows.clear();
  sampling.clear();
  vision.clear();
  batch = {};
  waits_for_masks = false;
  status = {};
  replayed = drawn = false;
  row_start_[0] = 0;
  table_columns_ = 0;
  changes_ = 0, first_changed_ = limits_.max_rows, last_changed_ = -1;
}

void Step::add_row(const sched::PlanRow& row, const RowSource& source) {
  if (add_known_row(row, source)) return;
  const int r = batch.rows++, begin = batch.tokens, count = row.count, context = row.first + count;
  const auto blocks = static_cast<int64_t>(source.blocks.size());
  const int used = (context + source.block_size - 1) / source.block_size;
  TERN_CHECK(r < limits_.max_rows && begin + count <= limits_.max_tokens);
  TERN_CHECK(used <= blocks && used <= limits_.max_blocks_per_row);
  batch.tokens += count;
  row_start_[r + 1] = batch.tokens;
  context_len_[r] = context;
  batch.max_query_len = std::max(batch.max_query_len, count);
  batch.max_context_len = std::max(batch.max_context_len, context);
  table_columns_ = std::max(table_columns_, used);
  const int32_t* table = block_table_.host() + static_cast<int64_t>(r) * limits_.max_blocks_per_row;
  const int32_t last_block = copy_table(r, used, source);
  if (sent_table_ != nullptr) change_table(r, used, source.table);
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

// Almost every row of a busy step: one token behind the prompt, in a block that the host's table ends with. Reads
// nothing of the sequence but a token that is not in flight.
bool Step::add_known_row(const sched::PlanRow& row, const RowSource& source) {
  const int r = batch.rows, t = batch.tokens, position = row.first;
  TERN_CHECK(r < limits_.max_rows && t < limits_.max_tokens);
  const TableRow& known = table_rows_[static_cast<size_t>(r)];
  const int offset = position - (known.used - 1) * source.block_size;
  if (row.count != 1 || source.table == 0 || known.table != source.table || offset < 0 || offset >= source.block_size ||
      position < source.prompt || row.logit_count > 1) {
    return false;
  }
  const bool in_flight = row.previous_row >= 0;
  token_source_[t] = in_flight ? row.previous_row : -1;
  token_ids_[t] = in_flight ? 0 : source.tokens[static_cast<size_t>(position)];
  int32_t* const place = positions_.host() + t;
  const int64_t stride = limits_.max_tokens;
  place[0] = place[stride] = place[2 * stride] = position + source.rope_delta;
  slot_mapping_[t] = int64_t{known.last} * source.block_size + offset;
  if (!pictures_.empty()) picture_row_[t] = -1;
  if (row.logit_count == 1) logit_index_[row.logit_begin] = t;
  row_start_[r + 1] = t + 1;
  context_len_[r] = position + 1;
  batch.rows = r + 1, batch.tokens = t + 1, batch.logit_rows += row.logit_count;
  batch.max_query_len = std::max(batch.max_query_len, 1);
  batch.max_context_len = std::max(batch.max_context_len, position + 1);
  table_columns_ = std::max(table_columns_, known.used);
  if (sent_table_ != nullptr) change_table(r, known.used, source.table);
  return true;
}

// Brings a row of the block table up to `used` entries and returns the last.
int32_t Step::copy_table(int row, int used, const RowSource& source) {
  TableRow& known = table_rows_[static_cast<size_t>(row)];
  int32_t* table = block_table_.host() + static_cast<int64_t>(row) * limits_.max_blocks_per_row;
  const bool same = source.table != 0 && known.table == source.table;
  if (same && known.used == used) return known.last;
  const int from = same ? std::min(known.used, used) : 0;
  std::copy(source.blocks.begin() + from, source.blocks.begin() + used, table + from);
  known = {source.table, used, table[used - 1]};
  return known.last;
}

// Notes what the device's row of the block table lacks of `used` entries. More changes than there is room for are only
// counted: the rows are then sent whole.
void Step::change_table(int row, int used, uint64_t table) {
  TableRow& sent = (*sent_table_)[static_cast<size_t>(row)];
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
  batch.has_pictures = true;
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
