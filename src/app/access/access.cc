#include "app/access/access.h"

#include <algorithm>

#include "app/access/key_file.h"

namespace tern::app {

Expected<Access> Access::from(const FlagSet& flags) {
  TERN_ASSIGN_OR_RETURN(TlsFiles tls, TlsFiles::from(flags));
  return Access{.flag_keys = flags.texts("api-key"),
                .admin_keys = flags.texts("admin-api-key"),
                .key_file = flags.text("api-key-file"),
                .tls = std::move(tls)};
}

Expected<std::vector<std::string>> Access::keys(std::vector<std::string>& warnings) const {
  std::vector<std::string> keys = flag_keys;
  if (!key_file.empty()) {
    TERN_ASSIGN_OR_RETURN(KeyFile file, read_key_file(key_file));
    if (!file.warning.empty()) warnings.push_back(std::move(file.warning));
    keys.insert(keys.end(), file.keys.begin(), file.keys.end());
  }
  const auto is_admin = [&](const std::string& key) { return std::ranges::find(admin_keys, key) != admin_keys.end(); };
  if (std::ranges::any_of(keys, is_admin)) {
    return make_error(ErrorCode::kInvalidArgument, "--admin-api-key must not be a key of clients", "admin-api-key");
  }
  return keys;
}

}  // namespace tern::app
