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
  // Names may be parts of a module's ("mlp.gate", "visual"), as transformers has them; else they are whole.
  void allow_parts() { parts_ = true; }
  // "Linear" names every matrix. What stands before the layers' names ("model.", "model.language_model.") is no
  // difference. Parts are whole words between dots.
  bool contains(std::string_view module) const;
  // The same, where parts may be any text within the name: "gate" then names "gate_proj", too, which libraries
  // understand differently.
  bool may_contain(std::string_view module) const;
  bool empty() const { return !every_ && names_.empty() && patterns_.empty(); }

 private:
  bool every_ = false, parts_ = false;
  std::set<std::string, std::less<>> names_;  // without what stands before the layers' names
  std::vector<std::regex> patterns_;
};

}  // namespace tern::model
