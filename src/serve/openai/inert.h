// Fields of requests that clients of FastDeploy, vLLM and OpenAI send and that have no effect in this server. A client
// who sets one expects something: the request is refused in one line that names the field, or, with
// ServeConfig::allow_inert, answered without it after one warning per field and process.
//
// Unknown fields are ignored, as FastDeploy ignores them, and so are hints that change no answer (docs/requests.md).
#pragma once

#include <string_view>
#include <vector>

#include "serve/openai/ask.h"
#include "serve/openai/json/fields.h"

namespace tern::serve::openai {

// After every check of types and ranges: their errors come first. Nothing is done once `f` has failed.
void check_inert(Fields& f, const Ask& ask, const ServeConfig& config);

// Names of all such fields, for the test that holds docs/requests.md to them.
std::vector<std::string_view> inert_field_names();

}  // namespace tern::serve::openai
