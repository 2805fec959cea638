#include "engine/step/step_inputs.h"

#include <algorithm>

namespace tern::engine {

Expected<StepInputs> StepInputs::create(const model::BatchLimits& l, bool pictures, int ranks, device::Device& device,
                                        const StepInputs* shares, const StepInputs* of) {
  StepInputs s;
  s.has_pictures = pictures, s.has_owners = ranks > 1, s.stride = l.max_tokens;
  const auto make = [&]<class T>(sample::Staged<T> StepInputs::*array, int64_t n) -> Status {
    TERN_ASSIGN_OR_RETURN(s.*array,
                          sample::Staged<T>::create(n, device, shares == nullptr ? nullptr : &(shares->*array),
                                                    of == nullptr ? nullptr : &(of->*array)));
    return {};
  };
  TERN_RETURN_IF_ERROR(make(&StepInputs::token_ids, l.max_tokens));
  TERN_RETURN_IF_ERROR(make(&StepInputs::token_source, l.max_tokens));
  TERN_RETURN_IF_ERROR(make(&StepInputs::positions, int64_t{3} * l.max_tokens));
  TERN_RETURN_IF_ERROR(make(&StepInputs::slot_mapping, l.max_tokens));
  TERN_RETURN_IF_ERROR(make(&StepInputs::row_start, l.max_rows + 1));
  TERN_RETURN_IF_ERROR(make(&StepInputs::context_len, l.max_rows));
  TERN_RETURN_IF_ERROR(make(&StepInputs::logit_index, l.max_logit_rows));
  TERN_RETURN_IF_ERROR(make(&StepInputs::picture_row, pictures ? l.max_tokens : 0));
  TERN_RETURN_IF_ERROR(make(&StepInputs::owner, ranks > 1 ? l.max_logit_rows : 0));
  return s;
}

void StepInputs::set_views(model::Batch& b) const {
  b.token_ids = tensor1(token_ids.device(), DType::kI32, b.tokens);
  b.token_source = tensor1(token_source.device(), DType::kI32, b.tokens);
  b.positions = tensor2(positions.device(), DType::kI32, 3, b.tokens, stride);
  b.slot_mapping = tensor1(slot_mapping.device(), DType::kI64, b.tokens);
  b.row_start = tensor1(row_start.device(), DType::kI32, b.rows + 1);
  b.context_len = tensor1(context_len.device(), DType::kI32, b.rows);
  b.logit_index = tensor1(logit_index.device(), DType::kI32, b.logit_rows);
  if (has_pictures) b.picture_row = tensor1(picture_row.device(), DType::kI32, b.tokens);
}

void StepInputs::upload(int tokens, int rows, int logit_rows, sample::CopyList& list) const {
  token_ids.upload(tokens, list);
  token_source.upload(tokens, list);
  positions.upload_rows(0, tokens, 3, stride, list);
  slot_mapping.upload(tokens, list);
  row_start.upload(rows + 1, list);
  context_len.upload(rows, list);
  logit_index.upload(logit_rows, list);
  if (has_pictures) picture_row.upload(tokens, list);
  if (has_owners) owner.upload(logit_rows, list);
}

void StepInputs::pad(int from, int tokens) {
  const int64_t more = tokens - from;
  std::fill_n(token_ids.host() + from, more, 0);
  std::fill_n(token_source.host() + from, more, -1);
  std::fill_n(slot_mapping.host() + from, more, int64_t{0});
  for (int axis = 0; axis < 3; ++axis) std::fill_n(positions.host() + axis * stride + from, more, 0);
  if (has_pictures) std::fill_n(picture_row.host() + from, more, -1);
}

}  // namespace tern::engine
