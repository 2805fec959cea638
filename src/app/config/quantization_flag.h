// --quantization of the small commands: what serve reads from its table of flags.
#pragma once

#include <string>

#include "base/error.h"
#include "json/json.h"

namespace tern::app {

// A method's name, or JSON; null for nothing. Errors name the flag.
Expected<json::Value> quantization_value(const std::string& text);

}  // namespace tern::app
