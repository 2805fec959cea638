// How a model is cut over the ranks of a tensor-parallel group, as far as others need to know.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "model/decoder_spec.h"
#include "model/model.h"

namespace tern::model {

// The columns of the logits, and the rows of the embedding, that a rank has: equal parts, the last may be smaller.
struct VocabularyPart {
  int64_t first = 0, count = 0;
};
VocabularyPart vocabulary_part(int64_t vocab, int rank, int ranks);
// The columns of what forward() leaves that a rank has. Of a pooling model every rank has all of them.
VocabularyPart output_part(const ModelInfo& info, int rank, int ranks);

// Numbers of ranks, up to `most`, that can share the model: its heads and widths divide, KV heads divide or are copied
// to neighbours; with `expert_parallel` the numbers of experts divide instead of their widths, among the ranks of all
// `engines`.
std::vector<int> rank_counts(const DecoderSpec& spec, bool expert_parallel, int most, int engines = 1);

// kInvalidArgument, and one line that names what does not divide and the numbers that work, unless there is one rank in
// all.
Status check_ranks(const DecoderSpec& spec, bool expert_parallel, int ranks, int engines = 1);

}  // namespace tern::model
