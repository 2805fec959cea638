// What a schema says about a value that came as text.
#include <algorithm>

#include "answer/tools/parts/xml_arguments.h"

namespace tern::answer {
namespace {

constexpr int kMaxDepth = 8;  // of references and alternatives

struct Kinds {
  bool text = false, null = false, other = false;
};

const json::Object* object_of(const json::Value* value) {
  return value != nullptr && value->is_object() ? &value->as_object() : nullptr;
}

// "#/$defs/x" in the schema; null when there is no such place.
const json::Value* refer(const json::Value& root, std::string_view ref) {
  if (!ref.starts_with("#/")) return nullptr;
  ref.remove_prefix(2);
  const json::Value* at = &root;
  while (true) {
    const size_t slash = ref.find('/');
    const json::Object* object = object_of(at);
    at = object != nullptr ? object->if_contains(ref.substr(0, slash)) : nullptr;
    if (at == nullptr || slash == std::string_view::npos) return at;
    ref.remove_prefix(slash + 1);
  }
}

void add_type(std::string_view type, Kinds& kinds) {
  if (type == "string") {
    kinds.text = true;
  } else if (type == "null") {
    kinds.null = true;
  } else {
    kinds.other = true;
  }
}

void add_value(const json::Value& value, Kinds& kinds) {
  add_type(value.is_string() ? "string" : value.is_null() ? "null" : "other", kinds);
}

void collect(const json::Value& root, const json::Value& schema, int depth, Kinds& kinds) {
  const json::Object* object = object_of(&schema);
  if (object == nullptr || depth > kMaxDepth) return;
  if (const json::Value* type = object->if_contains("type")) {
    if (type->is_string()) add_type(type->as_string(), kinds);
    if (type->is_array()) {
      for (const json::Value& item : type->as_array()) {
        if (item.is_string()) add_type(item.as_string(), kinds);
      }
    }
    return;
  }
  if (const json::Value* value = object->if_contains("const")) add_value(*value, kinds);
  if (const json::Value* list = object->if_contains("enum"); list != nullptr && list->is_array()) {
    for (const json::Value& value : list->as_array()) add_value(value, kinds);
  }
  if (const json::Value* ref = object->if_contains("$ref"); ref != nullptr && ref->is_string()) {
    if (const json::Value* target = refer(root, ref->as_string())) collect(root, *target, depth + 1, kinds);
  }
  for (const char* key : {"anyOf", "oneOf", "allOf"}) {
    const json::Value* list = object->if_contains(key);
    if (list == nullptr || !list->is_array()) continue;
    const auto& items = list->as_array();
    for (size_t i = 0; i < std::min<size_t>(items.size(), 16); ++i) collect(root, items[i], depth + 2, kinds);
  }
}

}  // namespace

ValueKind value_kind(const json::Value& schema, std::string_view key, ValueKind unknown) {
  const json::Object* object = object_of(&schema);
  const json::Object* properties = object != nullptr ? object_of(object->if_contains("properties")) : nullptr;
  const json::Value* property = properties != nullptr ? properties->if_contains(key) : nullptr;
  if (property == nullptr) return unknown;
  Kinds kinds;
  collect(schema, *property, 0, kinds);
  if (kinds.other || (kinds.null && !kinds.text)) return ValueKind::kJson;
  if (!kinds.text) return unknown;
  return kinds.null ? ValueKind::kTextOrNull : ValueKind::kText;
}

const json::Value* find_parameters(const Tools& tools, std::string_view name) {
  const auto found = std::ranges::find(tools, name, &ToolSpec::name);
  return found == tools.end() ? nullptr : &found->parameters;
}

}  // namespace tern::answer
