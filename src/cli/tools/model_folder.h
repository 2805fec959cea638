// The folder that a command's --model means.
#pragma once

#include <string>

#include "base/error.h"

namespace tern::cli {

// As serve looks it up: a path, or a hub's name below FD_MODEL_CACHE. kNotFound where there is none.
Expected<std::string> model_folder(const std::string& name);

}  // namespace tern::cli
