// Paddle's names of element types, and tensors as its messages describe them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "model/files/safetensors.h"

namespace tern::model {

// A type by its name in model.json. Nothing: a type that no weights have.
std::optional<FileType> pir_type(std::string_view name);

// TensorDesc: an element type and dimensions.
struct PaddleTensor {
  FileType type = FileType::kF32;
  std::vector<int64_t> dims;
  bool operator==(const PaddleTensor&) const = default;
};
Expected<PaddleTensor> read_tensor_desc(std::string_view message);
// Appends a dimension; false: it is negative, or there are too many.
bool add_dimension(int64_t value, PaddleTensor& to);

}  // namespace tern::model
