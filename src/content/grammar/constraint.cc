#include "content/grammar/constraint.h"

#include <array>
#include <string>
#include <utility>
#include <vector>

namespace tern::content {
namespace {

using Spec = Expected<std::optional<GrammarSpec>>;

Error bad(const std::string& field, const std::string& why) {
  return make_error(ErrorCode::kInvalidArgument, field + " " + why, field);
}

GrammarSpec spec(GrammarKind kind, std::string text, const GrammarOptions& options) {
  return GrammarSpec{kind, std::move(text), options};
}

// A schema as an object, or as the text of one.
Spec from_json(const std::string& field, const json::Value& value, const GrammarOptions& options) {
  if (value.is_object()) return std::optional(schema_spec(value, options));
  if (!value.is_string()) return bad(field, "must be a JSON schema: an object or its text");
  json::Limits limits;
  limits.max_bytes = 8u << 20;
  const auto parsed = json::parse(std::string_view(value.as_string()), limits);
  if (!parsed.ok()) return bad(field, "is not valid JSON: " + parsed.error().message);
  if (!parsed->is_object()) return bad(field, "must be a JSON schema: an object");
  return std::optional(spec(GrammarKind::kJsonSchema, std::string(value.as_string()), options));
}

Spec from_text(const std::string& field, GrammarKind kind, const json::Value& value, const GrammarOptions& options) {
  if (!value.is_string() || value.as_string().empty()) return bad(field, "must be a text that is not empty");
  return std::optional(spec(kind, std::string(value.as_string()), options));
}

Spec from_choice(const std::string& field, const json::Value& value, const GrammarOptions& options) {
  if (!value.is_array() || value.as_array().empty()) return bad(field, "must be a list of texts");
  for (const json::Value& text : value.as_array()) {
    if (!text.is_string() || text.as_string().empty()) return bad(field, "must be a list of texts, none of them empty");
  }
  return std::optional(spec(GrammarKind::kChoice, json::dump(value), options));
}

Spec from_flag(const std::string& field, const json::Value& value, const GrammarOptions& options) {
  if (!value.is_bool()) return bad(field, "must be true or false");
  if (!value.as_bool()) return std::optional<GrammarSpec>();
  return std::optional(spec(GrammarKind::kJsonObject, "", options));
}

Spec from_tag(const std::string& field, const json::Value& value, const GrammarOptions& options) {
  if (value.is_object()) return std::optional(spec(GrammarKind::kStructuralTag, json::dump(value), options));
  if (!value.is_string()) return bad(field, "must be a structural tag: an object or its text");
  return std::optional(spec(GrammarKind::kStructuralTag, std::string(value.as_string()), options));
}

Spec from_response_format(const std::string& field, const json::Value& value, const GrammarOptions& options) {
  const json::Object* object = value.if_object();
  const json::Value* type = object ? json::find(*object, "type") : nullptr;
  if (type == nullptr || !type->is_string()) return bad(field, "must be an object with a \"type\"");
  const std::string_view kind = type->as_string();
  if (kind == "text") return std::optional<GrammarSpec>();
  if (kind == "json_object") return std::optional(spec(GrammarKind::kJsonObject, "", options));
  if (kind == "structural_tag") return from_tag(field, value, options);
  if (kind != "json_schema") {
    return bad(field, "has the type \"" + std::string(kind) +
                          "\"; it must be text, json_object, json_schema or structural_tag");
  }
  const json::Value* wrapper = json::find(*object, "json_schema");
  if (wrapper == nullptr || !wrapper->is_object()) return bad(field, "has no object \"json_schema\"");
  const std::string inner = field + ".json_schema.schema";
  // Some clients of the original spell it as the attribute of its class.
  const json::Value* schema = json::find(wrapper->as_object(), "schema");
  if (schema == nullptr) schema = json::find(wrapper->as_object(), "json_schema");
  if (schema == nullptr) return bad(inner, "is missing");
  return from_json(inner, *schema, options);
}

Spec from_structured_outputs(const std::string& field, const json::Value& value, GrammarOptions options);

struct Field {
  std::string_view name;
  Spec (*read)(const std::string& field, const json::Value& value, const GrammarOptions& options);
};

Spec from_regex(const std::string& field, const json::Value& value, const GrammarOptions& options) {
  return from_text(field, GrammarKind::kRegex, value, options);
}

Spec from_grammar(const std::string& field, const json::Value& value, const GrammarOptions& options) {
  return from_text(field, GrammarKind::kLark, value, options);
}

Spec from_outputs(const std::string& field, const json::Value& value, const GrammarOptions& options) {
  return from_structured_outputs(field, value, options);
}

constexpr std::array kFields = {
    Field{"response_format", from_response_format},
    Field{"guided_json", from_json},
    Field{"guided_regex", from_regex},
    Field{"guided_choice", from_choice},
    Field{"guided_grammar", from_grammar},
    Field{"guided_json_object", from_flag},
    Field{"structural_tag", from_tag},
    Field{"structured_outputs", from_outputs},
};

constexpr std::array kOutputs = {
    Field{"json", from_json},       Field{"regex", from_regex},      Field{"choice", from_choice},
    Field{"grammar", from_grammar}, Field{"json_object", from_flag}, Field{"structural_tag", from_tag},
};

// The one field of `fields` that asks something; `prefix` leads the names in errors.
template <size_t N>
Expected<std::optional<Constraint>> only_one(const json::Object& body, const std::array<Field, N>& fields,
                                             const std::string& prefix, const GrammarOptions& options) {
  std::optional<Constraint> found;
  for (const Field& field : fields) {
    const json::Value* value = json::find(body, field.name);
    if (value == nullptr) continue;
    const std::string name = prefix + std::string(field.name);
    TERN_ASSIGN_OR_RETURN(std::optional<GrammarSpec> one, field.read(name, *value, options));
    if (!one) continue;
    if (found) {
      return bad(name, "cannot be used together with " + found->field + ": at most one may restrict the answer");
    }
    found = Constraint{name, *std::move(one)};
  }
  return found;
}

Spec from_structured_outputs(const std::string& field, const json::Value& value, GrammarOptions options) {
  if (!value.is_object()) return bad(field, "must be an object");
  const json::Object& object = value.as_object();
  for (const auto& [key, set] : {std::pair("disable_any_whitespace", &options.tight),
                                 std::pair("disable_additional_properties", &options.closed)}) {
    TERN_ASSIGN_OR_RETURN(const std::optional<bool> flag, json::get_bool(object, key));
    if (flag) *set = *flag;
  }
  const json::Value* space = json::find(object, "whitespace_pattern");
  if (space != nullptr) {
    return bad(field + ".whitespace_pattern", "cannot be chosen: at most 40 characters stand between tokens");
  }
  TERN_ASSIGN_OR_RETURN(std::optional<Constraint> one, only_one(object, kOutputs, field + ".", options));
  if (!one) return bad(field, "names none of json, regex, choice, grammar, json_object and structural_tag");
  return std::optional(std::move(one->spec));
}

}  // namespace

Expected<std::optional<Constraint>> constraint_of(const json::Object& body, const GrammarOptions& options) {
  return only_one(body, kFields, "", options);
}

GrammarSpec schema_spec(const json::Value& schema, const GrammarOptions& options) {
  return spec(GrammarKind::kJsonSchema, json::dump(schema), options);
}

}  // namespace tern::content
