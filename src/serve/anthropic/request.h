// Bodies of /v1/messages: put into the words of a chat request, whose checks then hold for both.
#pragma once

#include "base/error.h"
#include "json/json.h"
#include "serve/config.h"
#include "serve/core/ask.h"
#include "serve/openai/ask.h"

namespace tern::serve::anthropic {

Expected<Ask> read_request(json::Value body, const ServeConfig& config,
                           openai::Purpose purpose = openai::Purpose::kAnswer);

}  // namespace tern::serve::anthropic
