// model.pdmodel: ProgramDesc {1 blocks}, BlockDesc {3 vars, 4 ops}, VarDesc {1 name, 2 type, 3 persistable},
// VarType {1 type, 3 dense tensor {1 TensorDesc}}, OpDesc {1 inputs, 3 type, 4 attributes}.
#include <fmt/format.h>

#include "model/paddle/program.h"
#include "model/paddle/wire.h"

namespace tern::model {
namespace {

constexpr uint64_t kDenseTensor = 7;

Error corrupt(std::string what) { return make_error(ErrorCode::kCorrupt, std::move(what)); }

// Bytes of a field that must be a message or a string.
Expected<std::string_view> part_of(const WireReader& field, const char* what) {
  if (const auto bytes = field.bytes()) return *bytes;
  return corrupt(fmt::format("{} is not what ProgramDesc has there", what));
}

struct Variable {
  ProgramParameter parameter;
  bool persistable = false, dense = false;
};

Status read_type(std::string_view message, Variable& v) {
  WireReader fields(message);
  while (fields.next()) {
    if (fields.number() == 1) v.dense = fields.integer() == kDenseTensor;
    if (fields.number() != 3) continue;
    TERN_ASSIGN_OR_RETURN(const std::string_view dense, part_of(fields, "a variable's tensor"));
    WireReader inner(dense);
    while (inner.next()) {
      if (inner.number() != 1 || !v.persistable) continue;
      TERN_ASSIGN_OR_RETURN(const std::string_view tensor, part_of(inner, "a variable's tensor"));
      TERN_ASSIGN_OR_RETURN(v.parameter.tensor, read_tensor_desc(tensor));
    }
    if (inner.failed()) return corrupt("a variable's tensor is cut off");
  }
  return fields.failed() ? Status(corrupt("a variable's type is cut off")) : Status();
}

Status read_variable(std::string_view message, ProgramBuilder& builder) {
  Variable v;
  std::string_view type;
  WireReader fields(message);
  while (fields.next()) {
    if (fields.number() == 1) {
      TERN_ASSIGN_OR_RETURN(const std::string_view name, part_of(fields, "a variable's name"));
      v.parameter.name = name;
    } else if (fields.number() == 2) {
      TERN_ASSIGN_OR_RETURN(type, part_of(fields, "a variable's type"));
    } else if (fields.number() == 3) {
      v.persistable = fields.integer().value_or(0) != 0;
    }
  }
  if (fields.failed()) return corrupt("a variable is cut off");
  // What is fed and fetched is persistable, too, but holds no tensor.
  if (!v.persistable) return {};
  if (Status s = read_type(type, v); !s.ok())
    return make_error(s.error().code, fmt::format("variable {}: {}", v.parameter.name, s.error().message));
  return v.dense ? builder.add(std::move(v.parameter)) : Status();
}

// An operation's input: what it is called, and the variables.
struct Input {
  std::string_view called;
  std::vector<std::string> variables;
};

Status read_input(std::string_view message, Input& input) {
  WireReader fields(message);
  while (fields.next()) {
    if (fields.number() > 2) continue;
    TERN_ASSIGN_OR_RETURN(const std::string_view text, part_of(fields, "an operation's input"));
    if (fields.number() == 1) input.called = text;
    if (fields.number() == 2) input.variables.emplace_back(text);
  }
  return fields.failed() ? Status(corrupt("an operation's input is cut off")) : Status();
}

struct Attribute {
  std::string_view name;
  uint64_t value = 0;  // of an int (3), a bool (10) or a long (13)
};

Status read_attribute(std::string_view message, Attribute& a) {
  WireReader fields(message);
  while (fields.next()) {
    if (fields.number() == 1) {
      TERN_ASSIGN_OR_RETURN(a.name, part_of(fields, "an attribute's name"));
    } else if (fields.number() == 3 || fields.number() == 10 || fields.number() == 13) {
      a.value = fields.integer().value_or(0);
    }
  }
  return fields.failed() ? Status(corrupt("an attribute is cut off")) : Status();
}

Status read_operation(std::string_view message, ProgramBuilder& builder) {
  std::string_view type;
  std::vector<std::string> inputs;
  std::string matrix;
  bool transposed = false;
  std::optional<int64_t> arch;
  WireReader fields(message);
  while (fields.next()) {
    if (fields.number() != 1 && fields.number() != 3 && fields.number() != 4) continue;
    TERN_ASSIGN_OR_RETURN(const std::string_view part, part_of(fields, "an operation"));
    if (fields.number() == 3) {
      type = part;
    } else if (fields.number() == 1) {
      Input input;
      TERN_RETURN_IF_ERROR(read_input(part, input));
      if (input.called == "Y" && !input.variables.empty()) matrix = input.variables.front();
      inputs.insert(inputs.end(), input.variables.begin(), input.variables.end());
    } else {
      Attribute a;
      TERN_RETURN_IF_ERROR(read_attribute(part, a));
      if (a.name == "arch") arch = static_cast<int64_t>(a.value);
      if (a.name == "trans_y" || a.name == "transpose_Y") transposed = a.value != 0;
    }
  }
  if (fields.failed()) return corrupt("an operation is cut off");
  if (type == "weight_only_linear") {
    if (!arch) return corrupt("a weight_only_linear has no arch");
    TERN_RETURN_IF_ERROR(builder.arch(*arch));
  }
  builder.use(type, inputs, matrix, transposed);
  return {};
}

Status read_block(std::string_view message, ProgramBuilder& builder) {
  WireReader fields(message);
  while (fields.next()) {
    if (fields.number() != 3 && fields.number() != 4) continue;
    TERN_ASSIGN_OR_RETURN(const std::string_view part, part_of(fields, "a block"));
    TERN_RETURN_IF_ERROR(fields.number() == 3 ? read_variable(part, builder) : read_operation(part, builder));
  }
  return fields.failed() ? Status(corrupt("a block is cut off")) : Status();
}

}  // namespace

Expected<StaticProgram> parse_program_desc(std::string_view bytes) {
  ProgramBuilder builder;
  WireReader fields(bytes);
  while (fields.next()) {
    if (fields.number() != 1) continue;
    TERN_ASSIGN_OR_RETURN(const std::string_view block, part_of(fields, "a program"));
    TERN_RETURN_IF_ERROR(read_block(block, builder));
  }
  if (fields.failed()) return corrupt("the program is cut off, or no ProgramDesc");
  return builder.finish();
}

}  // namespace tern::model
