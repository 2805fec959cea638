// The error of a request whose value is not what it may be.
#pragma once

#include <string>
#include <utility>

#include "base/error.h"

namespace tern::serve {

// `param`: the field, as the OpenAI protocol spells it.
inline Error invalid_value(std::string message, std::string param = {}) {
  return make_error(ErrorCode::kInvalidArgument, std::move(message), std::move(param));
}

}  // namespace tern::serve
