// http and https: look up, check, connect to what was checked, follow redirects, try again.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "fetch/address.h"
#include "fetch/fetch.h"

namespace tern::fetch {

using Clock = std::chrono::steady_clock;

// What tests replace. A test may call an address of the loopback network public, since it must not talk to others.
struct Seams {
  // All addresses of a host. Errors: kInvalidArgument (there is no such host), kUnavailable (no answer in time).
  std::function<Expected<std::vector<Address>>(const std::string& host, Clock::time_point deadline)> look_up;
  std::function<bool(const Address&)> is_public;
  std::function<void(std::chrono::duration<double>)> sleep;
};
Seams system_seams();

// See fetch(). Every host is looked up once for each connection; all answers must be allowed, and only they are
// connected to, whatever a second look-up would say.
Expected<std::vector<std::byte>> fetch_http(std::string_view url, const FetchPolicy& policy, const Seams& seams);

}  // namespace tern::fetch
