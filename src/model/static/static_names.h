// Names of a static program's parameters: "fuse<family>.<layer>.<leaf>" within layers, generated ones outside.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace tern::model {

struct FusedName {
  std::string_view family, leaf;
  int layer = 0;
};
// Nothing: a generated name.
std::optional<FusedName> split_fused_name(std::string_view name);

struct StaticNames {
  std::string family;
  bool cache_scales = false;  // there are scales of a quantized cache
};
// Checks that all parameters are of one family that is read, and each one that is known. `original` names the
// checkpoint that an export was made from, for the errors.
Expected<StaticNames> check_static_names(const std::vector<std::string_view>& names, const std::string& original);

}  // namespace tern::model
