// Names of files that came from outside, before they are put into a folder.
#pragma once

#include <string_view>

namespace tern::app {

// Parts of a relative path that cannot lead out of the folder it is put into: none empty, "." or "..", no control
// characters and no backslash; 1024 bytes at most.
bool is_plain_path(std::string_view path);

}  // namespace tern::app
