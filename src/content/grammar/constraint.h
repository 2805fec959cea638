// The fields with which requests ask for guided decoding, in every dialect: FastDeploy's guided_* and structural_tag,
// OpenAI's response_format, vLLM's structured_outputs (fastdeploy.md 3.12).
#pragma once

#include <optional>
#include <string>

#include "base/error.h"
#include "content/grammar/grammar_spec.h"
#include "json/json.h"

namespace tern::content {

struct Constraint {
  std::string field;  // that asks, for errors
  GrammarSpec spec;
};
// What the body of a request asks of its answer's form; nothing where it asks nothing. At most one field may ask; an
// error's `param` is the field at fault. Nothing is compiled, so a spec may still be refused.
Expected<std::optional<Constraint>> constraint_of(const json::Object& body, const GrammarOptions& options);

// A schema that a tool or another part of a request brings.
GrammarSpec schema_spec(const json::Value& schema, const GrammarOptions& options);

}  // namespace tern::content
