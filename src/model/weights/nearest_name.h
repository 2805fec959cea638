// The closest name, for error messages.
#pragma once

#include <string>
#include <vector>

namespace tern::model {

// Empty when there is no candidate. Looks at the first few thousand candidates only: hostile files name many.
std::string nearest_name(const std::string& name, const std::vector<std::string>& candidates);

}  // namespace tern::model
