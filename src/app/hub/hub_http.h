// Requests to a hub, over libcurl. The token goes to the hub's own address alone; the environment's proxies are used.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "app/hub/hub_plan.h"
#include "base/error.h"
#include "fetch/curl_library.h"

namespace tern::app {

struct HubReply {
  long status = 0;
  // Headers; those of Hugging Face come with its redirect and are kept along it.
  std::string commit, etag, linked_etag, content_range;
  int64_t linked_size = -1, length = -1;  // bytes; -1: not told
  int64_t retry_after = -1;               // seconds
};

struct HubRequest {
  std::string url;
  bool head = false;
  int64_t from = 0;  // first byte that is wanted
  // Takes the body of a 200 or 206, piece by piece; false ends the request. Bodies of other answers are dropped.
  std::function<bool(const HubReply&, std::string_view)> sink = {};
};

// One connection at a time, kept between requests. For one thread.
class HubHttp {
 public:
  explicit HubHttp(const HubPlan& plan);
  // Errors: kUnavailable: no answer, or one that was cut or ended by the sink; kUnsupported: redirects that are not
  // followed, where asking again does not help. `reply` has what came until then.
  Status ask(const HubRequest& request, HubReply& reply);

 private:
  friend struct HubExchange;
  Status ask_once(const HubRequest& request, const std::string& url, HubReply& reply, std::string& location);
  const HubPlan& plan_;
  const fetch::CurlLibrary* curl_;
  fetch::EasyHandle handle_;
};

// Whether both addresses have the same scheme, host and port, letter by letter.
bool same_origin(std::string_view a, std::string_view b);
// 429, 408 and 5xx.
bool may_pass(long status);
// How long to wait before try number `failed` + 1: growing, with some chance in it, or what the hub asks for.
double retry_delay(int failed, int64_t retry_after);
inline constexpr int kHubTries = 5;  // without progress

// The whole body of a 200, tried again where that may help. Errors: kNotFound (404), kUnavailable, kTooLarge.
Expected<std::string> ask_text(const HubPlan& plan, HubHttp& http, const std::string& url, size_t max_bytes);
// The headers. Errors as of ask_text(). A redirect to another host is not followed.
Expected<HubReply> ask_head(const HubPlan& plan, HubHttp& http, const std::string& url);
// "HTTP status 404" and what may be done about it.
Error status_error(const HubPlan& plan, const std::string& url, long status);
// The text with everything escaped but letters, digits, "-._~" and `keep`.
std::string escaped_text(std::string_view text, std::string_view keep = "");

}  // namespace tern::app
