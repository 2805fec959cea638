// Whether a request can be served at all: lengths, ids, pictures and positions (CONTRACT.md, "What is let in").
#pragma once

#include "base/error.h"
#include "engine/loop/engine_parts.h"
#include "engine/request.h"

namespace tern::engine {

// Lowers max_tokens to what the context leaves room for.
Status check_request(Request& request, const EngineParts& parts);
// Of it, what concerns pictures and positions. Any thread.
Status check_places(const Request& request, const EngineParts& parts);

}  // namespace tern::engine
