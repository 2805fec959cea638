// What a request went through, told once it has ended: lines of trace.log (fastdeploy.md 10.2) and spans of
// OpenTelemetry.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "serve/config.h"
#include "serve/core/generation.h"

namespace tern::serve {

// As the configuration asks. `random_hex`: 32 digits, never the same twice.
void record_trace(const ServeConfig& config, const Generation& generation, bool failed,
                  const std::function<std::string()>& random_hex);

}  // namespace tern::serve
