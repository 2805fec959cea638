// Bytes behind a URL, for media parts: data:, http(s)://, file://. Blocking; runs on a pool's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace tern::fetch {

struct FetchPolicy {
  size_t max_bytes = 64u << 20;
  double connect_timeout = 5, total_timeout = 30;  // seconds; total: of all tries and redirects together
  int tries = 3;                                   // first delay 1 s, then doubled
  double retry_delay = 1.0;
  int max_redirects = 3;
  // Hosts that may be asked (exact, or ".example.org" for a domain and all below it; with ":8080" for that port only);
  // empty: every public one. A host named here may also resolve to a private address.
  std::vector<std::string> allowed_domains;
  std::vector<int> ports = {80, 443};  // of hosts that are not listed as host:port; allow_private: any
  bool allow_private = false;          // private, loopback, link-local and other special addresses
  bool allow_http = true;              // false: https only
  std::string local_root;              // --allowed-local-media-path; empty: no file:// at all
  std::string ca_file;                 // PEM bundle; empty: the system's
  // Asked about once a second and between tries, from the fetching thread; true ends the fetch (kCancelled). Empty:
  // never.
  std::function<bool()> cancelled;
  // Told of bytes before they are kept, and (a negative number) when those of a try that failed are gone; not of data:
  // URLs. False ends the fetch with no_room(). Empty: not counted.
  std::function<bool(int64_t bytes)> count;
};

Error no_room();  // kResourceExhausted

// Errors: kInvalidArgument (a bad URL, a refused host, address, scheme or path: fixed texts without the address found),
// kTooLarge, kUnavailable (not reachable, timed out, HTTP status), kCancelled.
Expected<std::vector<std::byte>> fetch(std::string_view url, const FetchPolicy& policy);

}  // namespace tern::fetch
