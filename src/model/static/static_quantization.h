// What a static export's tensors say about quantization, in the words of other checkpoints.
#pragma once

#include <string>
#include <vector>

#include "json/json.h"
#include "model/quantized/scheme.h"
#include "model/static/static_folder.h"

namespace tern::model {

// `config`: its quant_type is the method's name for people; what is read is what the tensors are.
FileQuantization static_quantization(const StaticFolder& folder, const json::Object& config);

// Lines for the user: what an export holds that is computed otherwise here, or not used.
std::vector<std::string> static_notes(const StaticFolder& folder, DType activation);

}  // namespace tern::model
