// Which tensor is the output layer: files and config.json may say different things about it.
#pragma once

#include <string>

#include "model/decoder_spec.h"
#include "model/files/checkpoint.h"

namespace tern::model {

// What stands in a checkpoint instead of the "model." of canonical names: "ernie.", "model.language_model.", nothing.
std::string find_root(const Checkpoint& checkpoint);

struct OutputLayer {
  bool tied = false;
  std::string name = "lm_head.weight";  // as the files write it
  std::string note;                     // one line for the user when files and config.json disagree; else empty
};

// A tied config beside an output layer in the files that has other values: the files are right, as in transformers 5
// (FastDeploy takes the embedding). Reads both tensors only when both are there.
OutputLayer find_output_layer(const DecoderSpec& spec, const Checkpoint& checkpoint);

}  // namespace tern::model
