// A YAML file as JSON.
#pragma once

#include <string>

#include "base/error.h"
#include "json/json.h"

namespace tern::app {

// A mapping, of at most a megabyte. Errors name --`flag`: kNotFound, kTooLarge, kCorrupt.
Expected<json::Object> read_yaml_object(const std::string& path, const char* flag);

}  // namespace tern::app
