// One step's device-ready inputs. The engine fills it, models and the sampler read it. Two batches of fixed addresses
// take turns, so that any step can be captured and replayed.
#pragma once

#include <cstdint>

#include "device/tensor.h"

namespace tern::model {

// Sizes the fixed addresses are made for. Nothing assumes one logit row per sequence.
struct BatchLimits {
  int max_tokens = 0;      // token budget plus the largest media item
  int max_rows = 0;        // sequences in a step
  int max_logit_rows = 0;  // logit positions in a step
  int max_blocks_per_row = 0;
};

struct Batch {
  int tokens = 0;      // T
  int rows = 0;        // R
  int logit_rows = 0;  // L
  int max_query_len = 0;
  int max_context_len = 0;
  int64_t long_context = 0;  // sum of the contexts of sequences with more than one token

  // Device memory, capacity as in BatchLimits; the first T, R, L entries are meant.
  TensorView token_ids;     // [T] int32; entries with token_source >= 0 are filled in on the device
  TensorView token_source;  // [T] int32: -1, or the row of the previous step's sampled ids this token takes
  TensorView positions;     // [3, T] int32; row stride is the capacity; text: three equal rows
  TensorView slot_mapping;  // [T] int64: block * block_size + offset; padding goes to block 0, the null block
  TensorView row_start;     // [R + 1] int32: first token of each row
  TensorView context_len;   // [R] int32: tokens in the cache once this step has run
  TensorView block_table;   // [R, max_blocks_per_row] int32
  TensorView logit_index;   // [L] int32: token whose hidden state gives this logit row

  // Pictures. Token t with picture_row[t] >= 0 takes that row of `pictures` in place of its embedding. Empty views for
  // a model without a tower; `has_pictures` is false when no token of this step takes a row.
  bool has_pictures = false;
  TensorView picture_row;  // [T] int32
  TensorView pictures;     // [P, hidden] bf16 or f32: what the tower made, kept by the engine at a fixed address
};

}  // namespace tern::model
