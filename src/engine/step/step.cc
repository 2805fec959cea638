#include "engine/step/step.h"

#include <algorithm>

#include "base/check.h"
#include "base/memory/prefetch.h"

namespace tern::engine {

Expected<Step> Step::make(const Parts& parts, device::Device& device, const Step* shares, const Step* of) {
  Step s;
  s.limits_ = parts.limits;
  s.pictures_ = parts.pictures;
  TERN_ASSIGN_OR_RETURN(s.inputs_,
                        StepInputs::create(parts.limits, !parts.pictures.empty(), parts.ranks, device,
                                           shares ? &shares->inputs_ : nullptr, of ? &of->inputs_ : nullptr));
  TERN_ASSIGN_OR_RETURN(s.table_, BlockTable::create(parts.limits, device, shares ? &shares->table_ : nullptr,
                                                     of ? &of->table_ : nullptr));
  TERN_ASSIGN_OR_RETURN(s.sampling,
                        sample::SamplingBatch::create(parts.sampling, device, shares ? &shares->sampling : nullptr));
  return s;
}

Expected<Step> Step::create(const Parts& parts, device::Device& device, const Step* shares) {
  TERN_ASSIGN_OR_RETURN(Step s, make(parts, device, shares, nullptr));
  s.masks = StepMasks(parts.sampling.masks ? static_cast<size_t>(parts.sampling.max_rows) : 0);
  const auto rows = static_cast<size_t>(parts.limits.max_rows);
  s.plain_ = PlainRows(rows);
  s.row_memory_.resize(rows);
  s.pooled_ = parts.pooled;
  if (const auto values = static_cast<size_t>(parts.limits.max_logit_rows) * static_cast<size_t>(parts.pooled)) {
    TERN_ASSIGN_OR_RETURN(s.pooled_rows_, device.allocate_host(values * sizeof(float)));
  }
  s.plan.rows.reserve(rows), s.plan.admitted.reserve(rows), s.plan.preempted.reserve(rows);
  return s;
}

Expected<Step> Step::of_rank(const Step& of, const Parts& parts, device::Device& device, const Step* shares) {
  return make(parts, device, shares, &of);
}

void Step::prefetch() const {
  const size_t n = rows.size(), ints = n * sizeof(int32_t);
  prefetch_memory(plan.rows.data(), n * sizeof(sched::PlanRow));
  plain_.prefetch(n);
  table_.prefetch(n);
  for (int axis = 0; axis < 3; ++axis) prefetch_memory(inputs_.positions.host() + axis * inputs_.stride, ints);
  prefetch_memory(inputs_.context_len.host(), ints);
  prefetch_memory(inputs_.slot_mapping.host(), 2 * ints);
  sampling.prefetch(static_cast<int>(n));
}

void Step::begin() {
  plain_.begin(batch);
  TERN_CHECK(plan.rows.size() <= row_memory_.size());
  rows = std::span(row_memory_).first(plan.rows.size());
  sampling.clear();
  vision.clear();
  batch = {};
  masks.clear();
  status = {};
  replayed = sampled = false;
  table_.begin();
  inputs_.row_start[0] = 0;
}

size_t Step::add_plain_rows(size_t row, std::span<const SlotOwner> owners, int block_size,
                            const sched::Scheduler& scheduler) {
  return plain_.add(row, {plan, rows, batch, sampling, inputs_, table_}, owners, block_size, scheduler);
}

void Step::add_row(const sched::PlanRow& row, const RowSource& source) {
  StepInputs& in = inputs_;
  const int r = batch.rows++, begin = batch.tokens, count = row.count, context = row.first + count;
  const int used = (context + source.block_size - 1) / source.block_size;
  TERN_CHECK(r < limits_.max_rows && begin + count <= limits_.max_tokens);
  plain_.forget(r);
  batch.tokens += count;
  in.row_start[r + 1] = batch.tokens;
  in.context_len[r] = context;
  batch.max_query_len = std::max(batch.max_query_len, count);
  batch.max_context_len = std::max(batch.max_context_len, context);
  if (count > 1) batch.long_context += context;
  table_.widen(used);
  table_.set(r, used, row.table, source.blocks);
  table_.note(r);
  const int last_block = table_.row(r).last, last_begin = (used - 1) * source.block_size;
  const int given = source.positions.empty() ? 0 : source.prompt;
  for (int i = 0; i < count; ++i) {
    const int t = begin + i, position = row.first + i;
    const bool in_flight = row.previous_row >= 0 && i == count - 1;
    in.token_source[t] = in_flight ? row.previous_row : -1;
    in.token_ids[t] = in_flight ? 0 : source.tokens[static_cast<size_t>(position)];
    for (int axis = 0; axis < 3; ++axis) {
      in.positions[axis * in.stride + t] =
          position < given
              ? source.positions[static_cast<size_t>(axis) * static_cast<size_t>(given) + static_cast<size_t>(position)]
              : position + source.rope_delta;
    }
    const int64_t block = position >= last_begin ? last_block : table_.block(r, position / source.block_size);
    in.slot_mapping[t] = block * source.block_size + position % source.block_size;
  }
  if (in.has_pictures) std::fill_n(in.picture_row.host() + begin, count, -1);
  for (int i = 0; i < row.logit_count; ++i) in.logit_index[row.logit_begin + i] = batch.tokens - row.logit_count + i;
  batch.logit_rows += row.logit_count;
}

void Step::take_pictures(int token, std::span<const int32_t> taken) {
  TERN_CHECK(inputs_.has_pictures && token >= 0 && token + static_cast<int>(taken.size()) <= batch.tokens);
  std::copy(taken.begin(), taken.end(), inputs_.picture_row.host() + token);
  batch.has_pictures = true;
  plain_.overwritten(token);
}

void Step::set_views(model::Batch& b) const {
  inputs_.set_views(b);
  b.block_table = table_.view(b.rows);
  if (inputs_.has_pictures) b.pictures = pictures_;
}

void Step::finish() {
  model::Batch& b = batch;
  TERN_CHECK(b.tokens == plan.tokens && b.logit_rows == plan.logit_rows && b.logit_rows <= limits_.max_logit_rows);
  set_views(b);
  sent_tokens_ = b.tokens, sent_rows_ = b.rows, sent_logit_rows_ = b.logit_rows;
}

void Step::pad(const StepShape& shape) {
  TERN_CHECK(shape.tokens >= batch.tokens && shape.tokens <= limits_.max_tokens);
  TERN_CHECK(shape.rows >= batch.rows && shape.rows >= batch.logit_rows && shape.rows <= limits_.max_rows &&
             shape.rows <= limits_.max_logit_rows);
  inputs_.pad(batch.tokens, shape.tokens);
  for (int r = batch.rows; r < shape.rows; ++r) inputs_.row_start[r + 1] = batch.tokens, inputs_.context_len[r] = 0;
  for (int l = batch.logit_rows; l < shape.rows; ++l) {
    inputs_.logit_index[l] = batch.logit_rows > 0 ? inputs_.logit_index[0] : 0;
  }
  table_.pad(shape.rows);
  sent_tokens_ = shape.tokens, sent_rows_ = sent_logit_rows_ = shape.rows;
}

model::Batch Step::view(const StepShape& shape, int max_context_len) const {
  model::Batch b;
  b.tokens = shape.tokens, b.rows = b.logit_rows = shape.rows;
  b.max_query_len = shape.decode ? 1 : shape.tokens;
  b.max_context_len = max_context_len;
  b.has_pictures = inputs_.has_pictures;
  set_views(b);
  return b;
}

void Step::fill_idle(const StepShape& shape) {
  begin();
  pad(shape);
  // One token in each row, the rest in the first.
  const int first = shape.tokens - shape.rows + 1;
  for (int r = 0; r < shape.rows; ++r) {
    inputs_.row_start[r + 1] = first + r;
    inputs_.context_len[r] = r == 0 ? first : 1;
    inputs_.logit_index[r] = first + r - 1;
  }
}

Status Step::upload(device::Device& device, device::Stream stream) const {
  sample::CopyList list;
  inputs_.upload(sent_tokens_, sent_rows_, sent_logit_rows_, list);
  table_.upload(batch.rows, list);
  sampling.upload(list);
  return list.run(device, stream);
}

void Step::list_inputs(const StepShape& shape, int samples, sample::CopyList& list) const {
  inputs_.upload(shape.tokens, shape.rows, shape.rows, list);
  table_.upload_changes(shape.rows, list);
  sampling.upload_rows(samples, list);
}

void Step::follow(const Step& of) {
  batch = of.batch;
  sent_tokens_ = of.sent_tokens_, sent_rows_ = of.sent_rows_, sent_logit_rows_ = of.sent_logit_rows_;
  table_.follow(of.table_);
  set_views(batch);
  sampling.clear();
  status = {};
  replayed = of.replayed, sampled = of.sampled;
}

Status Step::download_pooled(TensorView values, device::Device& device, device::Stream stream) const {
  TERN_CHECK(values.dim[1] == pooled_);
  const size_t bytes = static_cast<size_t>(batch.logit_rows) * static_cast<size_t>(pooled_) * sizeof(float);
  sample::CopyList list;
  list.add({pooled_rows_.data(), values.data, bytes, 1, bytes, bytes});
  return list.run(device, stream);
}

Status Step::upload_rest(device::Device& device, device::Stream stream) const {
  sample::CopyList list;
  table_.upload_rest(sent_rows_, list);
  sampling.upload_requests(list);
  return list.run(device, stream);
}

}  // namespace tern::engine
