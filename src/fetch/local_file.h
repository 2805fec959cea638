// file:// URLs below one folder.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace tern::fetch {

// file:///PATH or file://localhost/PATH, percent-decoded. PATH must begin with `root` (as given, or as the system
// resolves it), and nothing on the way below it may lead out again: no "..", no symbolic link to elsewhere. Only
// regular files are read. Errors: kInvalidArgument (malformed; no root; and one text for all of: outside, not there,
// not a file, not readable, so that nobody learns what exists), kTooLarge (more than max_bytes).
Expected<std::vector<std::byte>> read_local_file(std::string_view url, const std::string& root, size_t max_bytes);

}  // namespace tern::fetch
