// One URL to memory or to a file, over libcurl.
#pragma once

#include <cstddef>
#include <string>

#include "base/error.h"

namespace tern::app {

// The whole body. Errors: kUnavailable, kTooLarge.
Expected<std::string> fetch_text(const std::string& url, size_t max_bytes);

// Appends to the file what it lacks of the URL's bytes; tries again where the connection was cut. The file stays, with
// what has come, when that is not all. Errors: kUnavailable (not reached, status, cut), kIo (the disk).
Status fetch_file(const std::string& url, const std::string& path);

// The URL with everything in its path escaped but slashes and colons.
std::string escape_path(const std::string& path);

}  // namespace tern::app
