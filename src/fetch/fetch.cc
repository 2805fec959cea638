#include "fetch/fetch.h"

#include "fetch/data_url.h"
#include "fetch/local_file.h"
#include "fetch/transport.h"
#include "fetch/url.h"

namespace tern::fetch {

Expected<std::vector<std::byte>> fetch(std::string_view url, const FetchPolicy& policy) {
  const std::string scheme = url_scheme(url);
  if (scheme == "data") return decode_data_url(url, policy.max_bytes);
  if (scheme == "file") return read_local_file(url, policy.local_root, policy.max_bytes);
  return fetch_http(url, policy, system_seams());  // refuses every other scheme
}

}  // namespace tern::fetch
