// Who may come in: what flags name and files hold that are read again on SIGHUP.
#pragma once

#include <string>
#include <vector>

#include "app/access/tls_files.h"
#include "app/flags/flag_set.h"
#include "base/error.h"

namespace tern::app {

struct Access {
  std::vector<std::string> flag_keys;   // --api-key
  std::vector<std::string> admin_keys;  // --admin-api-key
  std::string key_file;                 // --api-key-file; "": none
  TlsFiles tls;

  static Expected<Access> from(const FlagSet& flags);
  // Of clients: flags and file, which is read now. None of them may be an admin's. `warnings` takes a line about its
  // mode.
  Expected<std::vector<std::string>> keys(std::vector<std::string>& warnings) const;
};

}  // namespace tern::app
