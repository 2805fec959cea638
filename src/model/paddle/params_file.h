// model.pdiparams: the tensors of a static program one behind the other, in the order of their sorted names, which the
// file itself does not hold.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "model/paddle/element_types.h"

namespace tern::model {

struct StoredParameter {
  PaddleTensor tensor;
  uint64_t begin = 0, end = 0;  // of its elements, bytes from the start of the file
};

// All tensors of a file. Errors name the tensor's number and what is wrong with it; the file must end with the last.
Expected<std::vector<StoredParameter>> parse_pdiparams(std::string_view file);

}  // namespace tern::model
