#include "app/hub/hub_http.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <chrono>
#include <random>
#include <thread>

namespace tern::app {
namespace {

constexpr int kMostRedirects = 5;
constexpr int kSilentTries = 3;  // of a hub that has not answered at all
constexpr size_t kMostHeaderBytes = 64u << 10;
constexpr double kLongestWait = 60;

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r\n"), end = text.find_last_not_of(" \t\r\n");
  return begin == std::string_view::npos ? std::string_view() : text.substr(begin, end - begin + 1);
}

int64_t number(std::string_view text) {
  int64_t value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && value >= 0 ? value : -1;
}

// "abc", W/"abc" and abc.
std::string tag(std::string_view text) {
  if (text.starts_with("W/")) text.remove_prefix(2);
  if (text.size() >= 2 && text.front() == '"' && text.back() == '"') text = text.substr(1, text.size() - 2);
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), [](unsigned char c) { return std::tolower(c); });
  return out;
}

void take_header(std::string_view line, HubReply& reply) {
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos) return;
  std::string name(line.substr(0, colon));
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  const std::string_view value = trimmed(line.substr(colon + 1));
  if (name == "x-repo-commit" && reply.commit.empty()) reply.commit = value;
  if (name == "x-linked-etag" && reply.linked_etag.empty()) reply.linked_etag = tag(value);
  if (name == "x-linked-size" && reply.linked_size < 0) reply.linked_size = number(value);
  if (name == "etag") reply.etag = tag(value);
  if (name == "content-length") reply.length = number(value);
  if (name == "content-range") reply.content_range = value;
  if (name == "retry-after") reply.retry_after = number(value);
}

}  // namespace

// What curl's callbacks see of one request.
struct HubExchange {
  const HubHttp* http;
  const HubRequest* request;
  HubReply* reply;
  size_t header_bytes = 0;

  static size_t header(char* data, size_t size, size_t count, void* to) {
    auto& self = *static_cast<HubExchange*>(to);
    const std::string_view line(data, size * count);
    self.header_bytes += line.size();
    if (self.header_bytes > kMostHeaderBytes) return 0;
    if (line.starts_with("HTTP/")) {  // of an answer of its own: a proxy's, 100 Continue, the hub's
      self.reply->etag.clear(), self.reply->content_range.clear();
      self.reply->length = self.reply->retry_after = -1;
    }
    take_header(line, *self.reply);
    return line.size();
  }
  static size_t body(char* data, size_t size, size_t count, void* to) {
    auto& self = *static_cast<HubExchange*>(to);
    const std::string_view bytes(data, size * count);
    long status = 0;
    self.http->curl_->easy_getinfo(self.http->handle_.get(), CURLINFO_RESPONSE_CODE, &status);
    self.reply->status = status;
    if (status != 200 && status != 206) return bytes.size();
    return self.request->sink && self.request->sink(*self.reply, bytes) ? bytes.size() : 0;
  }
};

HubHttp::HubHttp(const HubPlan& plan) : plan_(plan), curl_(fetch::curl_library()) {
  if (curl_ != nullptr) handle_.reset(curl_->easy_init());
}

Status HubHttp::ask_once(const HubRequest& request, const std::string& url, HubReply& reply, std::string& location) {
  if (handle_ == nullptr) return make_error(ErrorCode::kUnavailable, "libcurl.so.4 is not there, which fetches models");
  char why[CURL_ERROR_SIZE] = {};
  HubExchange exchange{this, &request, &reply};
  const auto set = [&](CURLoption option, auto value) { curl_->easy_setopt(handle_.get(), option, value); };
  fetch::ListHandle headers(curl_->slist_append(nullptr, "User-Agent: tern/" TERN_VERSION));
  if (!plan_.token.empty() && same_origin(url, plan_.endpoint)) {
    const std::string_view scheme = plan_.kind == HubKind::kAiStudio ? "token" : "Bearer";
    const std::string line = fmt::format("Authorization: {} {}", scheme, plan_.token);
    curl_slist* const more = curl_->slist_append(headers.get(), line.c_str());
    if (more != nullptr) (void)headers.release(), headers.reset(more);
  }
  fetch::set_download_options(handle_.get(), url, plan_.endpoint.starts_with("https:") ? "https" : "http,https", why);
  set(CURLOPT_HTTPHEADER, headers.get());
  if (request.head) {
    set(CURLOPT_NOBODY, 1L);
  } else {
    set(CURLOPT_HTTPGET, 1L);
  }
  set(CURLOPT_RESUME_FROM_LARGE, static_cast<curl_off_t>(0));
  const std::string range = request.from > 0 ? fmt::format("{}-", request.from) : std::string();
  set(CURLOPT_RANGE, range.empty() ? nullptr : range.c_str());
  set(CURLOPT_HEADERFUNCTION, HubExchange::header);
  set(CURLOPT_HEADERDATA, static_cast<void*>(&exchange));
  set(CURLOPT_WRITEFUNCTION, HubExchange::body);
  set(CURLOPT_WRITEDATA, static_cast<void*>(&exchange));
  const CURLcode code = curl_->easy_perform(handle_.get());
  curl_->easy_getinfo(handle_.get(), CURLINFO_RESPONSE_CODE, &reply.status);
  const char* to = nullptr;
  curl_->easy_getinfo(handle_.get(), CURLINFO_REDIRECT_URL, &to);
  location = to != nullptr ? to : "";
  set(CURLOPT_ERRORBUFFER, nullptr);
  set(CURLOPT_HTTPHEADER, nullptr);
  if (code == CURLE_OK) return {};
  return make_error(ErrorCode::kUnavailable, why[0] != 0 ? why : fmt::format("curl error {}", static_cast<int>(code)));
}

Status HubHttp::ask(const HubRequest& request, HubReply& reply) {
  reply = {};
  std::string url = request.url;
  for (int hops = 0; hops <= kMostRedirects; ++hops) {
    std::string location;
    TERN_RETURN_IF_ERROR(ask_once(request, url, reply, location));
    if (location.empty() || (request.head && !same_origin(location, url))) return {};
    if (!location.starts_with("https://") &&
        (plan_.endpoint.starts_with("https:") || !location.starts_with("http://"))) {
      return make_error(ErrorCode::kUnsupported,
                        fmt::format("the hub redirects to {}, which is not followed", location));
    }
    url = location;
  }
  return make_error(ErrorCode::kUnsupported, "the hub redirects too often");
}

bool same_origin(std::string_view a, std::string_view b) {
  // Up to the slash behind the host: what another reader might take for its end ('?', '#', '\', '@') is part of what is
  // compared, and no hub's address has it.
  const auto origin = [](std::string_view url) {
    const size_t scheme = url.find("://");
    return scheme == std::string_view::npos ? std::string_view() : url.substr(0, url.find('/', scheme + 3));
  };
  return !origin(a).empty() && origin(a) == origin(b);
}

bool may_pass(long status) { return status == 429 || status == 408 || status >= 500; }

double retry_delay(int failed, int64_t retry_after) {
  thread_local std::minstd_rand chance{std::random_device{}()};
  if (retry_after >= 0) return std::min(static_cast<double>(retry_after), kLongestWait);
  const double base = 0.25 * static_cast<double>(int64_t{1} << std::min(failed, 6));
  return base * std::uniform_real_distribution<double>(0.75, 1.25)(chance);
}

Error status_error(const HubPlan& plan, const std::string& url, long status) {
  std::string hint;
  if (status == 401 || status == 403) {
    constexpr const char* kTokens[] = {"HF_TOKEN", "MODELSCOPE_API_TOKEN", "AISTUDIO_ACCESS_TOKEN"};
    hint = fmt::format("; a private or gated model needs {}", kTokens[static_cast<size_t>(plan.kind)]);
  }
  return make_error(status == 404 ? ErrorCode::kNotFound : ErrorCode::kUnavailable,
                    fmt::format("{}: HTTP status {}{}", url, status, hint));
}

namespace {

// Asks until the answer is one that does not change by waiting. `over`: the sink wants no more.
Status ask_again(HubHttp& http, const HubRequest& request, HubReply& reply, const bool& over,
                 const std::function<void()>& reset) {
  for (int failed = 0;; ++failed) {
    reset();
    const Status status = http.ask(request, reply);
    const bool final = over || (!status.ok() && status.error().code == ErrorCode::kUnsupported);
    const bool again = !final && (!status.ok() || may_pass(reply.status));
    const int tries = !status.ok() && reply.status == 0 ? kSilentTries : kHubTries;
    if (!again || failed + 1 >= tries) {
      if (status.ok()) return {};
      return make_error(status.error().code, fmt::format("{}: {}", request.url, status.error().message));
    }
    std::this_thread::sleep_for(
        std::chrono::duration<double>(retry_delay(failed, status.ok() ? reply.retry_after : -1)));
  }
}

}  // namespace

Expected<std::string> ask_text(const HubPlan& plan, HubHttp& http, const std::string& url, size_t max_bytes) {
  std::string text;
  bool large = false;
  HubRequest request{.url = url};
  request.sink = [&](const HubReply&, std::string_view bytes) {
    large = text.size() + bytes.size() > max_bytes;
    if (!large) text += bytes;
    return !large;
  };
  HubReply reply;
  const Status status = ask_again(http, request, reply, large, [&] { text.clear(); });
  if (large) return make_error(ErrorCode::kTooLarge, fmt::format("{}: more than {} bytes", url, max_bytes));
  if (!status.ok()) return status.error();
  if (reply.status != 200) return status_error(plan, url, reply.status);
  return text;
}

Expected<HubReply> ask_head(const HubPlan& plan, HubHttp& http, const std::string& url) {
  HubReply reply;
  TERN_RETURN_IF_ERROR(ask_again(http, {.url = url, .head = true}, reply, false, [] {}));
  if (reply.status != 200 && (reply.status < 300 || reply.status > 308)) return status_error(plan, url, reply.status);
  return reply;
}

std::string escaped_text(std::string_view text, std::string_view keep) {
  std::string out;
  for (const char c : text) {
    const auto u = static_cast<unsigned char>(c);
    const bool plain = (u < 0x80 && std::isalnum(u)) || std::string_view("-._~").find(c) != std::string_view::npos ||
                       keep.find(c) != std::string_view::npos;
    if (plain)
      out += c;
    else
      out += fmt::format("%{:02X}", u);
  }
  return out;
}

}  // namespace tern::app
