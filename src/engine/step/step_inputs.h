// What the model reads of a step, beside its block table: arrays at fixed addresses, filled row by row.
#pragma once

#include <cstdint>

#include "base/error.h"
#include "device/device.h"
#include "model/batch.h"
#include "sample/staged.h"

namespace tern::engine {

struct StepInputs {
  // `shares`: null, or those of the other step, whose device side these take too.
  static Expected<StepInputs> create(const model::BatchLimits& limits, bool pictures, device::Device& device,
                                     const StepInputs* shares);
  void set_views(model::Batch& b) const;  // of the batch's sizes
  void upload(int tokens, int rows, int logit_rows, sample::CopyList& list) const;
  // What a batch of those sizes has of `other`, into this one's device side.
  void take(const StepInputs& other, const model::Batch& sizes, sample::CopyList& list) const;
  // Tokens from `from` up to `tokens` belong to no row and write to the null block.
  void pad(int from, int tokens);

  bool has_pictures = false;
  int64_t stride = 0;  // of the three rows of positions
  sample::Staged<int32_t> token_ids, token_source, positions, row_start, context_len, logit_index, picture_row;
  sample::Staged<int64_t> slot_mapping;
};

}  // namespace tern::engine
