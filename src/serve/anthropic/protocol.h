// /v1/messages and /v1/messages/count_tokens.
#pragma once

#include <string>
#include <string_view>

#include "serve/core/protocol.h"

namespace tern::serve::anthropic {

extern const Protocol kMessages;

// {"type":"error","error":{"type","message"}} for a status from 400 on.
std::string error_body(int status, std::string_view message);
// The answer of /v1/messages/count_tokens.
std::string count_body(size_t tokens);

}  // namespace tern::serve::anthropic
