// Reading whole files with a limit.
#pragma once

#include <string>

#include "base/error.h"

namespace tern::content {

// The bytes of a regular file. kNotFound, kIo, or kTooLarge when it has more than max_bytes; the message names the
// path.
Expected<std::string> read_file(const std::string& path, size_t max_bytes);
bool is_file(const std::string& path);

}  // namespace tern::content
