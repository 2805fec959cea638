// The folder that a command's --model means.
#pragma once

#include <string>

#include "base/error.h"

namespace tern::cli {

// As serve finds it: a path, or a hub's name, which is fetched where it is not here. kNotFound where there is none.
Expected<std::string> model_folder(const std::string& name);

}  // namespace tern::cli
