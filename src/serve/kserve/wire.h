// What a serialized message holds before protobuf makes objects of it.
#pragma once

#include <cstddef>
#include <string_view>

namespace tern::serve::kserve {

// Protobuf makes objects of a hundred bytes and more from fields of two. False: a ModelInferRequest of these bytes has
// more than `most` fields, those of its tensors and parameters counted, or is none.
bool few_fields(std::string_view message, size_t most);

}  // namespace tern::serve::kserve
