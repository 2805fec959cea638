// Which tensors an export has, and what its config.json says about them.
#pragma once

#include <string>
#include <vector>

#include "json/json.h"
#include "model/files/tensor_writer.h"
#include "model/opened_folder.h"
#include "model/weights/pack.h"

namespace tern::model {

struct ExportTensor {
  enum class Kind : uint8_t { kValues, kCodes, kScales, kShape, kCopy };
  TensorToWrite tensor;
  Kind kind = Kind::kValues;
  int parameter = -1;                         // of the plan; kCopy: none
  const ops::WeightFormat* format = nullptr;  // of codes and their scales
  const StoredTensor* copied = nullptr;
};

struct ExportPlan {
  std::vector<ExportTensor> tensors;  // scales and shape follow their codes
  json::Value quantization_config;
};

// Errors: what the formats of the files cannot say.
Expected<ExportPlan> plan_export(const OpenedFolder& folder, const WeightPlan& plan, const std::vector<Stored>& stored,
                                 const PackOptions& pack);

}  // namespace tern::model
