// What the model reads of a step, beside its block table: arrays at fixed addresses, filled row by row.
#pragma once

#include <cstdint>

#include "base/error.h"
#include "device/device.h"
#include "model/batch.h"
#include "sample/staged.h"

namespace tern::engine {

struct StepInputs {
  // `shares`: null, or those of the other step, whose device side these take too. `of`: null, or those whose host side
  // these have, for a rank's device. `ranks`: of several each logit row has an owner.
  static Expected<StepInputs> create(const model::BatchLimits& limits, bool pictures, int ranks, device::Device& device,
                                     const StepInputs* shares, const StepInputs* of);
  void set_views(model::Batch& b) const;  // of the batch's sizes
  void upload(int tokens, int rows, int logit_rows, sample::CopyList& list) const;
  // Tokens from `from` up to `tokens` belong to no row and write to the null block.
  void pad(int from, int tokens);

  bool has_pictures = false, has_owners = false;
  int64_t stride = 0;  // of the three rows of positions
  sample::Staged<int32_t> token_ids, token_source, positions, row_start, context_len, logit_index, picture_row;
  sample::Staged<int32_t> owner;  // of each logit row: the rank that draws it
  sample::Staged<int64_t> slot_mapping;
};

}  // namespace tern::engine
