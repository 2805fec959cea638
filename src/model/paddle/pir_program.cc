// model.json: {"base_code": {"magic": "pir"}, "program": {"regions": [{"blocks": [{"ops": [...]}]}]}}. An operation is
// {"#": type, "A": attributes, "I": inputs, "O": outputs}, with regions of its own where it has branches; values are
// numbers under "%". Operations of type "p" are parameters, whose attributes are a list with the name last.
#include <fmt/format.h>

#include <map>

#include "json/json.h"
#include "model/paddle/program.h"

namespace tern::model {
namespace {

// A program of 61 layers with experts is 30 MB; 6 values per byte is more than any text has.
constexpr json::Limits kLimits{.max_bytes = 256u << 20, .max_depth = 128, .max_nodes = 32u << 20};

Error corrupt(std::string what) { return make_error(ErrorCode::kCorrupt, std::move(what)); }

const json::Object* object_in(const json::Object& o, std::string_view key) {
  const json::Value* v = json::find(o, key);
  return v == nullptr ? nullptr : v->if_object();
}
const json::Array* array_in(const json::Object& o, std::string_view key) {
  const json::Value* v = json::find(o, key);
  return v == nullptr ? nullptr : v->if_array();
}

class PirReader {
 public:
  Expected<StaticProgram> run(const json::Object& root) {
    const json::Object* base = object_in(root, "base_code");
    const json::Value* magic = base == nullptr ? nullptr : json::find(*base, "magic");
    if (magic == nullptr || !magic->is_string()) return corrupt("there is no base_code.magic");
    if (magic->get_string() != "pir")
      return make_error(ErrorCode::kUnsupported,
                        fmt::format("base_code.magic is \"{}\", not \"pir\"", std::string(magic->get_string())));
    const json::Object* program = object_in(root, "program");
    if (program == nullptr) return corrupt("there is no program");
    TERN_RETURN_IF_ERROR(regions(*program, 0));
    return builder_.finish();
  }

 private:
  Status regions(const json::Object& owner, int depth) {
    const json::Array* all = array_in(owner, "regions");
    if (all == nullptr) return depth == 0 ? Status(corrupt("the program has no regions")) : Status();
    for (const json::Value& region : *all) {
      const json::Array* blocks = region.is_object() ? array_in(region.get_object(), "blocks") : nullptr;
      if (blocks == nullptr) return corrupt("a region has no blocks");
      for (const json::Value& block : *blocks) {
        const json::Array* ops = block.is_object() ? array_in(block.get_object(), "ops") : nullptr;
        if (ops == nullptr) return corrupt("a block has no ops");
        for (const json::Value& op : *ops) {
          if (!op.is_object()) return corrupt("an operation is not an object");
          TERN_RETURN_IF_ERROR(operation(op.get_object(), depth));
        }
      }
    }
    return {};
  }

  Status operation(const json::Object& op, int depth) {
    const json::Value* type = json::find(op, "#");
    if (type == nullptr || !type->is_string()) return corrupt("an operation has no type");
    if (type->get_string() == "p") return parameter(op);
    std::string_view name = type->get_string();
    if (const size_t dot = name.find('.'); dot != std::string_view::npos) name.remove_prefix(dot + 1);
    std::vector<std::string> inputs;
    std::string matrix;
    if (const json::Array* in = array_in(op, "I"); in != nullptr) {
      for (size_t i = 0; i < in->size(); ++i) {
        const std::string* read = parameter_of((*in)[i]);
        if (read != nullptr) inputs.push_back(*read);
        if (read != nullptr && i == 1) matrix = *read;
      }
    }
    if (name == "weight_only_linear") {
      const json::Value* arch = attribute(op, "arch");
      if (arch == nullptr || !arch->is_int64()) return corrupt("a weight_only_linear has no arch");
      TERN_RETURN_IF_ERROR(builder_.arch(arch->get_int64()));
    }
    const json::Value* turned = attribute(op, "transpose_y");
    builder_.use(name, inputs, matrix, turned != nullptr && turned->is_bool() && turned->get_bool());
    return regions(op, depth + 1);
  }

  Status parameter(const json::Object& op) {
    ProgramParameter p;
    const json::Array* attributes = array_in(op, "A");
    if (attributes == nullptr || attributes->empty() || !attributes->back().is_string())
      return corrupt("a parameter has no name");
    p.name = std::string(attributes->back().get_string());
    const json::Object* out = object_in(op, "O");
    const json::Object* type = out == nullptr ? nullptr : object_in(*out, "TT");
    const json::Array* data = type == nullptr ? nullptr : array_in(*type, "D");
    if (data == nullptr || data->size() < 2 || !(*data)[0].is_object() || !(*data)[1].is_array())
      return corrupt(fmt::format("the parameter {} has no type", p.name));
    const json::Value* element = json::find((*data)[0].get_object(), "#");
    const auto found = element != nullptr && element->is_string() ? pir_type(element->get_string()) : std::nullopt;
    if (!found)
      return make_error(ErrorCode::kUnsupported,
                        fmt::format("the parameter {} has elements of a type that no weights have", p.name));
    p.tensor.type = *found;
    for (const json::Value& d : (*data)[1].get_array())
      if (!d.is_int64() || !add_dimension(d.get_int64(), p.tensor))
        return corrupt(fmt::format("the parameter {} has a shape that is none", p.name));
    const json::Value* id = json::find(*out, "%");
    if (id == nullptr || !id->is_int64()) return corrupt(fmt::format("the parameter {} has no number", p.name));
    values_[id->get_int64()] = p.name;
    return builder_.add(std::move(p));
  }

  // The name of the parameter that an input is; null: it is none.
  const std::string* parameter_of(const json::Value& input) const {
    const json::Value* id = input.is_object() ? json::find(input.get_object(), "%") : nullptr;
    if (id == nullptr || !id->is_int64()) return nullptr;
    const auto found = values_.find(id->get_int64());
    return found == values_.end() ? nullptr : &found->second;
  }

  // The value under the name in [{"N": name, "AT": {"D": value}}].
  static const json::Value* attribute(const json::Object& op, std::string_view name) {
    const json::Array* all = array_in(op, "A");
    if (all == nullptr) return nullptr;
    for (const json::Value& a : *all) {
      const json::Object* one = a.if_object();
      const json::Value* called = one == nullptr ? nullptr : json::find(*one, "N");
      if (called == nullptr || !called->is_string() || called->get_string() != name) continue;
      const json::Object* type = object_in(*one, "AT");
      return type == nullptr ? nullptr : json::find(*type, "D");
    }
    return nullptr;
  }

  std::map<int64_t, std::string> values_;  // numbers of values that are parameters
  ProgramBuilder builder_;
};

}  // namespace

Expected<StaticProgram> parse_pir_program(std::string_view text) {
  TERN_ASSIGN_OR_RETURN(const json::Value root, json::parse(text, kLimits));
  if (!root.is_object()) return corrupt("it is not a JSON object");
  return PirReader().run(root.get_object());
}

}  // namespace tern::model
