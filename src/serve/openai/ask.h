// A request of the OpenAI protocol read into what all protocols ask for.
#pragma once

#include <string_view>

#include "base/error.h"
#include "json/json.h"
#include "serve/config.h"
#include "serve/core/ask.h"

namespace tern::serve::openai {

// What the request is for: fields that steer the answer do not matter where only tokens are counted.
enum class Purpose { kAnswer, kTokens };

// Validates a body. The error's `param` is the field at fault.
Expected<Ask> parse_chat(json::Value body, const ServeConfig& config, Purpose purpose = Purpose::kAnswer);
Expected<Ask> parse_completion(json::Value body, const ServeConfig& config);
// Of pooling models (fastdeploy.md 3.13); ServeConfig::pooling is there.
Expected<Ask> parse_embedding(json::Value body, const ServeConfig& config);
Expected<Ask> parse_reward(json::Value body, const ServeConfig& config);

}  // namespace tern::serve::openai
