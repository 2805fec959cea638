// A static export as a checkpoint of safetensors, which this program and others read.
#pragma once

#include "base/error.h"
#include "model/files/folder_writer.h"
#include "model/loader.h"

namespace tern::model {

struct ConvertOptions {
  LoadOptions load;  // `path`
  FolderWriterOptions write;
};

// Values keep their type. Whole-number codes become compressed-tensors and FP8 Hugging Face's fp8, or both
// compressed-tensors where an export has both. Loaded, the folder computes what the export does, bit by bit. It appears
// when all of it is on the disk; after an error there is none.
Status convert_static(const ConvertOptions& options);

}  // namespace tern::model
