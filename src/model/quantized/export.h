// A model folder as another one whose weights are codes, which this program and others read.
#pragma once

#include "base/error.h"
#include "model/files/folder_writer.h"
#include "model/loader.h"

namespace tern::model {

struct ExportOptions {
  LoadOptions load;  // `path` and `quantization`
  FolderWriterOptions write;
};

// Writes compressed-tensors (int8, int4) or Hugging Face's fp8, with config.json and the folder's other small files.
// Loaded again, the weights are those that load_model() makes of `load`, bit by bit. The folder appears when all of it
// is on the disk; after an error there is none.
Status export_model(const ExportOptions& options);

}  // namespace tern::model
