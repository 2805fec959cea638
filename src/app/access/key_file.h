// The file of --api-key-file.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace tern::app {

// One key a line; empty lines and what follows a '#' at the beginning or behind white space are left out. Keys are
// printable ASCII without white space, as headers carry them. Errors name the line and say nothing of its text: no key,
// more than kMostKeys of them, one of more than kLongestKey bytes or with other characters.
inline constexpr size_t kMostKeys = 4096, kLongestKey = 1024;
Expected<std::vector<std::string>> parse_keys(std::string_view text);

struct KeyFile {
  std::vector<std::string> keys;
  std::string warning;  // a line about who else may read the file; "": nobody
};
// Errors: as parse_keys(), and a file that cannot be read or is not a regular one; all name the path.
Expected<KeyFile> read_key_file(const std::string& path);

}  // namespace tern::app
