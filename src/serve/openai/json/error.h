// Error bodies and status codes (fastdeploy.md 2.7).
#pragma once

#include <string>
#include <string_view>

#include "base/error.h"
#include "serve/core/invalid.h"
#include "serve/http/response.h"

namespace tern::serve::openai {

// How an Error shows to a client. kTooLarge means the context here; a body or JSON that is too large is answered
// before.
struct ErrorFace {
  int status;
  std::string_view type;
  std::string_view code;
};

// {"error":{"message","type","param","code"}}
std::string error_json(const Error& error);
// Status 503 with Retry-After: what is asked cannot be had now, and may be had in a moment.
http::Response busy_response(std::string message);
// `original_status`: 500 for what was found after validation, as FastDeploy answers.
http::Response error_response(const Error& error, bool original_status = false);

using serve::invalid_value;

}  // namespace tern::serve::openai
