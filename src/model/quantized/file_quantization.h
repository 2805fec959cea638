// What a model folder says about quantization, beside what the command line asks for.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "json/json.h"
#include "model/loader.h"
#include "model/quantized/scheme.h"

namespace tern::model {

// quantization_config of config.json, or the file of its own that older GPTQ and AWQ folders have
// (quantize_config.json, quant_config.json); of a static export, what its tensors are.
Expected<FileQuantization> find_file_quantization(const std::string& folder, const json::Object& config,
                                                  const std::string& architecture);
// The same of a folder whose config.json is not read yet.
Expected<FileQuantization> read_file_quantization(const std::string& folder);

// The files win over the command line (fastdeploy.md 7.2). Changes `options.quantization` to what is to be made while
// loading, and adds lines for the user to files.notes.
void settle_quantization(FileQuantization& files, LoadOptions& options);

}  // namespace tern::model
