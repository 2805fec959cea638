// /tokenize and /detokenize.
#pragma once

#include "json/json.h"
#include "serve/http/response.h"
#include "serve/openai/prepare.h"

namespace tern::serve {

// {"prompt": str} or chat fields, "add_special_tokens" -> {"count","max_model_len","tokens"}.
http::Response tokenize(const json::Value& body, const openai::PrepareInput& input);
// The answer of the above for known ids.
http::Response tokens_response(const std::vector<int32_t>& ids, const ServeConfig& config);
// {"tokens": [ids]} -> {"prompt": str}.
http::Response detokenize(const json::Value& body, const openai::PrepareInput& input);

}  // namespace tern::serve
