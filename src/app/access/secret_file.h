// Small files of keys and certificates.
#pragma once

#include <sys/types.h>

#include <string>

#include "base/error.h"

namespace tern::app {

struct SecretFile {
  std::string text;
  mode_t mode = 0;  // of the file, permissions alone
  bool open_to_others() const { return (mode & 077) != 0; }
};
// A regular file of at most a megabyte; never waits, whatever stands there. Errors are one line with the path; `flag`
// names who asks.
Expected<SecretFile> read_secret_file(const std::string& path, const std::string& flag);
// The line about a file with a secret that is open_to_others().
std::string open_file_warning(const std::string& path, const std::string& flag, mode_t mode);

}  // namespace tern::app
