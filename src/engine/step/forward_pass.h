// A forward pass as a device gets it: the model, and of several ranks the logits of the rows that this one draws.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/error.h"
#include "device/communicator.h"
#include "model/model.h"

namespace tern::engine {

struct ForwardPass {
  const model::Model* model = nullptr;
  const model::KvCache* cache = nullptr;
  char* workspace = nullptr;
  size_t workspace_bytes = 0;
  TensorView logits;  // [max_logit_rows, outputs of the model] f32
  // Of several ranks: the rank's columns of all rows, of which it gets the rows of its slots whole.
  device::Communicator communicator;
  TensorView part;           // [max_logit_rows, columns] f32
  int64_t first_column = 0;  // of them in the vocabulary

  device::Communicator experts;  // of the ranks of all engines; alone: engines share no experts

  // `owner`: device memory, the rank of each logit row; null: one rank. `engine_tokens`: the tokens of each of the
  // engines that share experts.
  Status run(const model::Batch& batch, const int32_t* owner, std::span<const int32_t> engine_tokens,
             device::Stream stream) const;
};

}  // namespace tern::engine
