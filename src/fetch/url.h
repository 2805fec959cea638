// What may be asked of whom: URLs of media against a FetchPolicy, without touching the network.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "fetch/address.h"
#include "fetch/curl_library.h"
#include "fetch/fetch.h"

namespace tern::fetch {

// An http or https URL that passed. `handle` is what is fetched: nothing parses the text a second time.
struct Target {
  UrlHandle handle;
  std::string host;  // lower case, no brackets, no trailing dot
  int port = 0;
  std::optional<Address> literal;  // the host is an address
  bool listed = false;             // FetchPolicy::allowed_domains names it (with this port)
};

inline constexpr size_t kMaxUrlBytes = 8192;

// Errors: kInvalidArgument with one of a few fixed texts; kTooLarge for an overlong URL; kUnavailable without libcurl.
// Refused are other schemes, user names, hosts that two readers could read differently (odd spellings of addresses,
// percent signs, backslashes, non-ASCII letters, zone ids), literal addresses that are not public, and ports other than
// 80 and 443 (unless allowed_domains names host:port, or allow_private).
Expected<Target> check_url(std::string_view url, const FetchPolicy& policy);

// The policy's word on an address found for the target's host. `is_public` is the caller's (a seam of the tests).
template <class IsPublic>
bool check_address(const Target& target, const Address& address, const FetchPolicy& policy, const IsPublic& is_public) {
  return policy.allow_private || target.listed || is_public(address);
}

// The scheme in lower case, or empty when the text does not begin with one.
std::string url_scheme(std::string_view url);
// The fixed error of everything that is refused because of where it leads.
Error refused_host();

}  // namespace tern::fetch
