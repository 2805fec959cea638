// Lists of modules in quantization configs: names, "re:" before a pattern that a name begins with, or a class of
// modules.
#pragma once

#include <regex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace tern::model {

class ModuleNames {
 public:
  // An error for a pattern that is none, or that could take very long to match.
  Status add(const std::string& entry);
  // "Linear" names every matrix.
  bool contains(std::string_view module) const;
  bool empty() const { return !every_ && names_.empty() && patterns_.empty(); }

 private:
  bool every_ = false;
  std::set<std::string, std::less<>> names_;
  std::vector<std::regex> patterns_;
};

}  // namespace tern::model
