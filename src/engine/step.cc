#include "engine/step.h"

#include <algorithm>

#include "base/check.h"

namespace tern::engine {

Expected<Step> Step::create(const model::BatchLimits& l, const sample::SamplerLimits& sampling,
                            const TensorView& pictures, device::Device& device) {
  Step s;
  s.limits_ = l;
  s.pictures_ = pictures;
  using I32 = sample::Staged<int32_t>;
  TERN_ASSIGN_OR_RETURN(s.token_ids_, I32::create(l.max_tokens, device));
  TERN_ASSIGN_OR_RETURN(s.token_source_, I32::create(l.max_tokens, device));
  TERN_ASSIGN_OR_RETURN(s.positions_, I32::create(int64_t{3} * l.max_tokens, device));
  TERN_ASSIGN_OR_RETURN(s.slot_mapping_, sample::Staged<int64_t>::create(l.max_tokens, device));
  TERN_ASSIGN_OR_RETURN(s.row_start_, I32::create(l.max_rows + 1, device));
  TERN_ASSIGN_OR_RETURN(s.context_len_, I32::create(l.max_rows, device));
  TERN_ASSIGN_OR_RETURN(s.block_table_, I32::create(static_cast<int64_t>(l.max_rows) * l.max_blocks_per_row, device));
  TERN_ASSIGN_OR_RETURN(s.logit_index_, I32::create(l.max_logit_rows, device));
  TERN_ASSIGN_OR_RETURN(s.picture_row_, I32::create(pictures.empty() ? 0 : l.max_tokens, device));
  TERN_ASSIGN_OR_RETURN(s.sampling, sample::SamplingBatch::create(sampling, device));
  const auto rows = static_cast<size_t>(l.max_rows);
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
  row_start_[0] = 0;
}

void Step::add_row(const sched::PlanRow& row, const RowSource& source) {
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
  int32_t* table = block_table_.host() + static_cast<int64_t>(r) * limits_.max_blocks_per_row;
  std::copy_n(source.blocks.begin(), used, table);
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
    slot_mapping_[t] =
        static_cast<int64_t>(table[position / source.block_size]) * source.block_size + position % source.block_size;
  }
  if (!pictures_.empty()) std::fill_n(picture_row_.host() + begin, count, -1);
  for (int i = 0; i < row.logit_count; ++i) logit_index_[row.logit_begin + i] = batch.tokens - row.logit_count + i;
  batch.logit_rows += row.logit_count;
}

void Step::take_pictures(int token, std::span<const int32_t> taken) {
  TERN_CHECK(!pictures_.empty() && token >= 0 && token + static_cast<int>(taken.size()) <= batch.tokens);
  std::copy(taken.begin(), taken.end(), picture_row_.host() + token);
  batch.has_pictures = true;
}

void Step::finish() {
  model::Batch& b = batch;
  TERN_CHECK(b.tokens == plan.tokens && b.logit_rows == plan.logit_rows && b.logit_rows <= limits_.max_logit_rows);
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

void Step::upload(device::Device& device, device::Stream stream) const {
  token_ids_.upload(batch.tokens, device, stream);
  token_source_.upload(batch.tokens, device, stream);
  positions_.upload(int64_t{2} * limits_.max_tokens + batch.tokens, device, stream);
  slot_mapping_.upload(batch.tokens, device, stream);
  row_start_.upload(batch.rows + 1, device, stream);
  context_len_.upload(batch.rows, device, stream);
  block_table_.upload(static_cast<int64_t>(batch.rows) * limits_.max_blocks_per_row, device, stream);
  logit_index_.upload(batch.logit_rows, device, stream);
  if (batch.has_pictures) picture_row_.upload(batch.tokens, device, stream);
}

}  // namespace tern::engine
