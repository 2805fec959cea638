#include "fetch/transport.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <optional>

#include "fetch/curl_library.h"
#include "fetch/url.h"

namespace tern::fetch {
namespace {

using Seconds = std::chrono::duration<double>;

constexpr size_t kMaxHeaderBytes = 64 << 10;
constexpr size_t kMaxAddresses = 8;

// What one exchange gathers; libcurl's callbacks write here.
struct Exchange {
  size_t max_bytes = 0;
  std::vector<Address> allowed;
  std::vector<std::byte> body;
  size_t header_bytes = 0;
  const std::function<bool(int64_t)>* count = nullptr;
  bool too_large = false;
  bool no_room = false;  // `count` said so
  bool refused = false;  // a connection elsewhere than to `allowed` was attempted
};

// An exchange's end: a body, somewhere else to go, or an error that a further try may mend.
struct Outcome {
  std::optional<std::string> redirect;
  std::optional<Error> error;
  bool again = false;
};

Error unavailable(std::string text) { return make_error(ErrorCode::kUnavailable, std::move(text), "url"); }
Error too_large() {
  return make_error(ErrorCode::kTooLarge, "What lies behind the URL is larger than allowed.", "url");
}
Error timed_out() { return unavailable("The URL could not be fetched in time."); }

bool is_cancelled(const FetchPolicy& policy) { return policy.cancelled && policy.cancelled(); }
Error cancelled() { return make_error(ErrorCode::kCancelled, "The fetch was cancelled.", "url"); }

int on_progress(void* user, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  return is_cancelled(*static_cast<const FetchPolicy*>(user)) ? 1 : 0;
}

size_t on_body(char* data, size_t, size_t size, void* user) {
  auto& exchange = *static_cast<Exchange*>(user);
  if (size > exchange.max_bytes - exchange.body.size()) {
    exchange.too_large = true;
    return 0;
  }
  if (*exchange.count && !(*exchange.count)(static_cast<int64_t>(size))) {
    exchange.no_room = true;
    return 0;
  }
  const auto* bytes = reinterpret_cast<const std::byte*>(data);
  exchange.body.insert(exchange.body.end(), bytes, bytes + size);
  return size;
}

size_t on_header(char*, size_t, size_t size, void* user) {
  auto& exchange = *static_cast<Exchange*>(user);
  exchange.header_bytes += size;
  return exchange.header_bytes > kMaxHeaderBytes ? 0 : size;
}

// The last word before a packet leaves: libcurl was told the addresses, and may not have found others.
curl_socket_t on_socket(void* user, curlsocktype purpose, curl_sockaddr* to) {
  auto& exchange = *static_cast<Exchange*>(user);
  const auto address = address_of(to->addr);
  const auto& allowed = exchange.allowed;
  if (purpose != CURLSOCKTYPE_IPCXN || !address ||
      std::find(allowed.begin(), allowed.end(), *address) == allowed.end()) {
    exchange.refused = true;
    return CURL_SOCKET_BAD;
  }
  return socket(to->family, to->socktype | SOCK_CLOEXEC, to->protocol);
}

std::string pinned(const Target& target, const std::vector<Address>& addresses) {
  std::string out = target.host + ":" + std::to_string(target.port);
  char before = ':';
  for (const Address& address : addresses) {
    out += before;
    before = ',';
    if (address.v6) out += '[';
    out += address_text(address);
    if (address.v6) out += ']';
  }
  return out;
}

long milliseconds(Seconds time) { return std::max(1L, static_cast<long>(time.count() * 1000)); }

bool set_options(const CurlLibrary& curl, CURL* easy, const Target& target, const FetchPolicy& policy, Seconds left,
                 Exchange& exchange) {
  bool ok = true;
  const auto set = [&](CURLoption option, auto value) { ok = curl.easy_setopt(easy, option, value) == CURLE_OK && ok; };
  set(CURLOPT_CURLU, target.handle.get());
  set(CURLOPT_PROTOCOLS_STR, policy.allow_http ? "http,https" : "https");
  set(CURLOPT_FOLLOWLOCATION, 0L);
  set(CURLOPT_PROXY, "");  // also turns the environment's proxies off
  set(CURLOPT_NOPROXY, "*");
  set(CURLOPT_NETRC, static_cast<long>(CURL_NETRC_IGNORED));
  set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_FRESH_CONNECT, 1L);
  set(CURLOPT_FORBID_REUSE, 1L);
  set(CURLOPT_USERAGENT, "tern/" TERN_VERSION);
  set(CURLOPT_CONNECTTIMEOUT_MS, milliseconds(std::min(left, Seconds(policy.connect_timeout))));
  set(CURLOPT_TIMEOUT_MS, milliseconds(left));
  set(CURLOPT_MAXFILESIZE_LARGE, static_cast<curl_off_t>(policy.max_bytes));
  set(CURLOPT_WRITEFUNCTION, on_body);
  set(CURLOPT_WRITEDATA, &exchange);
  set(CURLOPT_HEADERFUNCTION, on_header);
  set(CURLOPT_HEADERDATA, &exchange);
  set(CURLOPT_OPENSOCKETFUNCTION, on_socket);
  set(CURLOPT_OPENSOCKETDATA, &exchange);
  set(CURLOPT_NOPROGRESS, policy.cancelled ? 0L : 1L);
  set(CURLOPT_XFERINFOFUNCTION, on_progress);
  set(CURLOPT_XFERINFODATA, &policy);
  const std::string trusted = policy.ca_file.empty() ? system_certificates() : policy.ca_file;
  if (!trusted.empty()) set(CURLOPT_CAINFO, trusted.c_str());  // libcurl keeps a copy
  return ok;
}

Outcome judge_failure(CURLcode code, const Exchange& exchange) {
  if (exchange.too_large || code == CURLE_FILESIZE_EXCEEDED) return {{}, too_large(), false};
  if (exchange.no_room) return {{}, no_room(), false};
  if (exchange.refused) return {{}, refused_host(), false};
  switch (code) {
    case CURLE_ABORTED_BY_CALLBACK:
      return {{}, cancelled(), false};
    case CURLE_OPERATION_TIMEDOUT:
      return {{}, timed_out(), true};
    case CURLE_COULDNT_CONNECT:
    case CURLE_GOT_NOTHING:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_PARTIAL_FILE:
    case CURLE_SSL_CONNECT_ERROR:
      return {{}, unavailable("The URL's host could not be reached, or broke off."), true};
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
      return {{}, unavailable("The certificate of the URL's host could not be verified."), false};
    case CURLE_OUT_OF_MEMORY:
      return {{}, make_error(ErrorCode::kResourceExhausted, "Out of memory.", "url"), false};
    default:
      return {{}, unavailable("The answer to the URL's request could not be read."), false};
  }
}

Outcome judge_status(const CurlLibrary& curl, CURL* easy) {
  long status = 0;
  curl.easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
  if (status >= 200 && status < 300) return {};
  if (status == 301 || status == 302 || status == 303 || status == 307 || status == 308) {
    const char* next = nullptr;
    curl.easy_getinfo(easy, CURLINFO_REDIRECT_URL, &next);
    if (next != nullptr) return {std::string(next), {}, false};
  }
  const bool again = status >= 500 || status == 429 || status == 408;
  return {{}, unavailable("The URL's host answered with HTTP status " + std::to_string(status) + "."), again};
}

Expected<std::vector<Address>> addresses_of(const Target& target, const FetchPolicy& policy, const Seams& seams,
                                            Clock::time_point deadline) {
  std::vector<Address> addresses;
  if (target.literal) {
    addresses.push_back(*target.literal);
  } else {
    const auto soon = Clock::now() + std::chrono::duration_cast<Clock::duration>(Seconds(policy.connect_timeout));
    TERN_ASSIGN_OR_RETURN(addresses, seams.look_up(target.host, std::min(soon, deadline)));
  }
  // One private answer among public ones is how a name is made to lead inside: all must pass.
  for (const Address& address : addresses) {
    if (!check_address(target, address, policy, seams.is_public)) return refused_host();
  }
  if (addresses.empty()) return refused_host();
  if (addresses.size() > kMaxAddresses) addresses.resize(kMaxAddresses);
  return addresses;
}

Outcome exchange_once(const Target& target, const FetchPolicy& policy, const Seams& seams, Clock::time_point deadline,
                      std::vector<std::byte>& body) {
  Exchange exchange;
  exchange.max_bytes = policy.max_bytes;
  exchange.count = &policy.count;
  auto addresses = addresses_of(target, policy, seams, deadline);
  if (!addresses.ok()) {
    const bool again = addresses.error().code == ErrorCode::kUnavailable;
    return {{}, std::move(addresses).error(), again};
  }
  exchange.allowed = std::move(*addresses);
  const Seconds left = deadline - Clock::now();
  if (left.count() <= 0) return {{}, timed_out(), true};

  const CurlLibrary& curl = *curl_library();  // check_url found it
  const EasyHandle easy(curl.easy_init());
  const ListHandle headers(curl.slist_append(nullptr, "Accept-Encoding: identity"));
  const ListHandle pins(target.literal ? nullptr
                                       : curl.slist_append(nullptr, pinned(target, exchange.allowed).c_str()));
  if (!easy || !headers || (!target.literal && !pins) ||
      !set_options(curl, easy.get(), target, policy, left, exchange) ||
      curl.easy_setopt(easy.get(), CURLOPT_HTTPHEADER, headers.get()) != CURLE_OK ||
      curl.easy_setopt(easy.get(), CURLOPT_RESOLVE, pins.get()) != CURLE_OK) {
    return {{}, make_error(ErrorCode::kInternal, "The HTTP client could not be set up."), false};
  }
  const CURLcode code = curl.easy_perform(easy.get());
  Outcome outcome = code == CURLE_OK ? judge_status(curl, easy.get()) : judge_failure(code, exchange);
  if (!outcome.error && !outcome.redirect) {
    body = std::move(exchange.body);
  } else if (policy.count && !exchange.body.empty()) {
    policy.count(-static_cast<int64_t>(exchange.body.size()));
  }
  return outcome;
}

void rest(Seconds time, const FetchPolicy& policy, const Seams& seams) {
  constexpr Seconds kSlice(0.2);
  while (policy.cancelled && time > kSlice && !policy.cancelled()) {
    seams.sleep(kSlice);
    time -= kSlice;
  }
  if (!is_cancelled(policy)) seams.sleep(time);
}

}  // namespace

Expected<std::vector<std::byte>> fetch_http(std::string_view url, const FetchPolicy& policy, const Seams& seams) {
  const auto total = std::chrono::duration_cast<Clock::duration>(Seconds(policy.total_timeout));
  const Clock::time_point deadline = Clock::now() + total;
  std::string where(url);
  int tries = std::max(1, policy.tries);
  Seconds delay(policy.retry_delay);
  for (int redirects = 0; redirects <= policy.max_redirects; ++redirects) {
    TERN_ASSIGN_OR_RETURN(const Target target, check_url(where, policy));
    while (true) {
      std::vector<std::byte> body;
      Outcome outcome = exchange_once(target, policy, seams, deadline, body);
      if (outcome.redirect) {
        where = *std::move(outcome.redirect);
        break;
      }
      if (!outcome.error) return body;
      if (!outcome.again || --tries == 0 || Clock::now() + delay >= deadline) return *std::move(outcome.error);
      rest(delay, policy, seams);
      if (is_cancelled(policy)) return cancelled();
      delay *= 2;
    }
  }
  return make_error(ErrorCode::kInvalidArgument, "The URL redirects too often.", "url");
}

}  // namespace tern::fetch
