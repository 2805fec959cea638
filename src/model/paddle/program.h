// What a static program says about its parameters: names, types, shapes and how its operations use them. Nothing of a
// program is run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "model/paddle/element_types.h"

namespace tern::model {

struct ProgramParameter {
  std::string name;
  PaddleTensor tensor;
  bool looked_up = false;   // rows are chosen by ids: an embedding
  bool multiplied = false;  // the right side of a product
  bool transposed = false;  // and its rows are the outputs
};

struct StaticProgram {
  std::vector<ProgramParameter> parameters;  // sorted by name, as model.pdiparams has them
  std::optional<int64_t> arch;               // of the operations on weight-only codes; they agree
};

// model.json of Paddle 3.
Expected<StaticProgram> parse_pir_program(std::string_view text);
// model.pdmodel of Paddle 2: a ProgramDesc.
Expected<StaticProgram> parse_program_desc(std::string_view bytes);

// What both readers share: parameters, then their uses by name.
class ProgramBuilder {
 public:
  Status add(ProgramParameter parameter);
  // An operation of this type reads the parameters; `matrix` is the right side of a product.
  void use(std::string_view type, const std::vector<std::string>& inputs, std::string_view matrix, bool transposed);
  // The arch attribute of a weight_only_linear.
  Status arch(int64_t value);
  // Sorts, and applies the uses.
  Expected<StaticProgram> finish();

 private:
  struct Use {
    std::string name;
    bool looked_up, transposed;
  };
  StaticProgram program_;
  std::vector<Use> uses_;
};

}  // namespace tern::model
