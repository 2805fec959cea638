// /tokenize and /detokenize.
#pragma once

#include "json/json.h"
#include "serve/http/response.h"
#include "serve/prepare/prepare.h"

namespace tern::serve {

// {"prompt": str} or chat fields, "add_special_tokens", "return_token_strs" ->
// {"count","max_model_len","tokens","token_strs"}.
http::Response tokenize(json::Value body, const prepare::PrepareInput& input);
// Its field "return_token_strs".
Expected<bool> wants_token_strs(const json::Value& body);
// The answer of the above for known ids; `strs`: with the vocabulary's own spelling of each.
http::Response tokens_response(const std::vector<int32_t>& ids, bool strs, const prepare::PrepareInput& input);
// {"tokens": [ids]} -> {"prompt": str}.
http::Response detokenize(const json::Value& body, const prepare::PrepareInput& input);

}  // namespace tern::serve
