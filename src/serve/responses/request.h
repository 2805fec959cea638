// Bodies of /v1/responses: put into the words of a chat request, whose checks then hold for both.
#pragma once

#include "base/error.h"
#include "json/json.h"
#include "serve/config.h"
#include "serve/core/ask.h"

namespace tern::serve::responses {

Expected<Ask> read_request(json::Value body, const ServeConfig& config);

}  // namespace tern::serve::responses
