// From a checked native request to token ids and a Generation. Runs on the CPU pool.
#pragma once

#include <memory>
#include <variant>

#include "serve/core/generation.h"
#include "serve/native/errors.h"
#include "serve/native/request.h"
#include "serve/prepare/prepare.h"

namespace tern::serve::native {

// `request.req_id` is set. A Refusal is the answer.
using Prepared = std::variant<std::unique_ptr<Generation>, Refusal>;
Prepared prepare(NativeRequest request, const prepare::PrepareInput& input);

}  // namespace tern::serve::native
