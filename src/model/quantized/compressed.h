// Writing codes as compressed-tensors: words of codes, and what config.json says about them.
#pragma once

#include <cstdint>
#include <string_view>

#include "json/json.h"

namespace tern::model {

// Words of 32 bits along the columns, codes counted from the lowest (models-other.md 16.3). `codes`: [n, k], a byte
// each, two's complement.
void pack_words(const uint8_t* codes, int64_t n, int64_t k, int bits, char* out);

// A group of config_groups: whole numbers with a scale per row (`group` 0) or per `group` columns.
json::Object compressed_group(int bits, int64_t group, json::Array targets);

// The quantization_config. `format`: of all groups, "mixed-precision" where they have their own.
json::Object compressed_config(std::string_view format, json::Object groups, json::Array ignore);

}  // namespace tern::model
