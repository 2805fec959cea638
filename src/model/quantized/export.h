// A model folder as another one whose weights are codes, which this program and others read.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/error.h"
#include "model/loader.h"

namespace tern::model {

struct ExportOptions {
  LoadOptions load;                   // `path` and `quantization`
  std::string out;                    // must not be there, or be empty
  size_t file_bytes = 4'000'000'000;  // of one file of weights, about
  // Asked between blocks of weights; true ends the export with an error.
  std::function<bool()> stop;
  std::function<void(size_t, size_t)> progress;  // bytes written and in all
};

// Writes compressed-tensors (int8, int4) or Hugging Face's fp8, with config.json and the folder's other small files.
// Loaded again, the weights are those that load_model() makes of `load`, bit by bit. The folder appears when all of it
// is on the disk; after an error there is none.
Status export_model(const ExportOptions& options);

}  // namespace tern::model
