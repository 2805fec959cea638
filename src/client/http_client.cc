#include "client/http_client.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <charconv>

#include "fetch/curl_library.h"

namespace tern::client {
namespace {

constexpr size_t kMaxLine = 1u << 20;

struct Answer {
  const std::function<bool(std::string_view)>& on_body;
  std::atomic<int>* socket;
  bool refused = false;
};

size_t take_body(char* data, size_t size, size_t count, void* to) {
  auto& answer = *static_cast<Answer*>(to);
  if (answer.on_body({data, size * count})) return size * count;
  answer.refused = true;
  return 0;  // ends the transfer
}

int socket_is_open(void* to, curl_socket_t socket, curlsocktype) {
  const auto& answer = *static_cast<Answer*>(to);
  if (answer.socket != nullptr) answer.socket->store(socket);
  return CURL_SOCKOPT_OK;
}

// A signal handler must not see a descriptor that is closed.
int close_socket(void* place, curl_socket_t socket) {
  if (place != nullptr) {
    int open = socket;
    static_cast<std::atomic<int>*>(place)->compare_exchange_strong(open, -1);
  }
  return ::close(socket);
}

std::string host_of(const Url& url) {
  return url.host.find(':') == std::string::npos ? url.host : "[" + url.host + "]";
}
std::string address_of(const Url& url) {
  return fmt::format("{}://{}:{}{}", url.tls ? "https" : "http", host_of(url), url.port, url.path);
}

}  // namespace

Expected<Url> parse_url(std::string_view text) {
  auto wrong = [&](const char* what) {
    return make_error(ErrorCode::kInvalidArgument, fmt::format("{} is no URL this program can use: {}", text, what),
                      "url");
  };
  Url url;
  url.tls = text.starts_with("https://");
  if (!url.tls && !text.starts_with("http://")) return wrong("it does not begin with http:// or https://");
  std::string_view rest = text.substr(text.find("//") + 2);
  if (url.tls) url.port = "443";
  const size_t slash = rest.find('/');
  std::string_view authority = rest.substr(0, slash);
  if (slash != std::string_view::npos) url.path = std::string(rest.substr(slash));
  while (url.path.ends_with('/')) url.path.pop_back();
  size_t colon = authority.rfind(':');
  if (authority.starts_with('[')) {
    const size_t close = authority.find(']');
    if (close == std::string_view::npos) return wrong("a bracket is missing");
    url.host = std::string(authority.substr(1, close - 1));
    colon = close + 1 < authority.size() && authority[close + 1] == ':' ? close + 1 : std::string_view::npos;
  } else {
    url.host = std::string(authority.substr(0, colon));
  }
  if (url.host.empty()) return wrong("it names no host");
  if (colon != std::string_view::npos) {
    const std::string_view port = authority.substr(colon + 1);
    uint16_t number = 0;
    const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
    if (error != std::errc() || end != port.data() + port.size() || number == 0) return wrong("its port is no port");
    url.port = std::string(port);
  }
  return url;
}

Status EventParser::feed(std::string_view bytes, const Sink& sink) {
  while (!bytes.empty()) {
    const size_t end = bytes.find('\n');
    line_ += bytes.substr(0, end);
    if (line_.size() > kMaxLine) return make_error(ErrorCode::kTooLarge, "the server sent an event of over a megabyte");
    if (end == std::string_view::npos) return {};
    bytes.remove_prefix(end + 1);
    std::string_view line = line_;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.starts_with("data:")) {
      line.remove_prefix(5);
      if (line.starts_with(' ')) line.remove_prefix(1);
      sink(line);
    }
    line_.clear();
  }
  return {};
}

std::string request_text(const Url& url, const HttpCall& call, bool keep_alive) {
  std::string text = fmt::format("{} {}{} HTTP/1.1\r\nHost: {}:{}\r\nAccept: */*\r\n", call.method, url.path, call.path,
                                 host_of(url), url.port);
  if (!keep_alive) text += "Connection: close\r\n";
  if (!call.api_key.empty()) text += fmt::format("Authorization: Bearer {}\r\n", call.api_key);
  for (const std::string& line : call.headers) text += line + "\r\n";
  if (!call.body.empty())
    text += fmt::format("Content-Type: application/json\r\nContent-Length: {}\r\n", call.body.size());
  return text + "\r\n" + call.body;
}

Expected<int> http_call(const Url& url, const HttpCall& call, const std::function<bool(std::string_view)>& on_body,
                        std::atomic<int>* socket) {
  const fetch::CurlLibrary* const curl = fetch::curl_library();
  if (curl == nullptr) return make_error(ErrorCode::kUnavailable, "libcurl.so.4 is not there or too old", "url");
  const fetch::EasyHandle handle(curl->easy_init());
  if (handle == nullptr) return make_error(ErrorCode::kResourceExhausted, "libcurl makes no handle");
  std::array<char, CURL_ERROR_SIZE> message{};
  Answer answer{on_body, socket};
  const auto set = [&](CURLoption option, auto value) { curl->easy_setopt(handle.get(), option, value); };
  set(CURLOPT_ERRORBUFFER, message.data());
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_PROXY, "");  // also turns the environment's proxies off
  set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  set(CURLOPT_HTTP09_ALLOWED, 0L);
  if (!call.unix_socket.empty()) set(CURLOPT_UNIX_SOCKET_PATH, call.unix_socket.c_str());
  if (!call.check_certificate) set(CURLOPT_SSL_VERIFYPEER, 0L), set(CURLOPT_SSL_VERIFYHOST, 0L);
  const std::string trusted = call.ca_file.empty() ? fetch::system_certificates() : call.ca_file;
  if (!trusted.empty()) set(CURLOPT_CAINFO, trusted.c_str());  // libcurl keeps a copy
  const std::string address = address_of(url) + call.path;
  set(CURLOPT_URL, address.c_str());
  set(CURLOPT_CUSTOMREQUEST, call.method.c_str());
  if (!call.body.empty()) {
    set(CURLOPT_POSTFIELDS, call.body.data());
    set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(call.body.size()));
  }
  fetch::ListHandle headers;
  const auto header = [&](const std::string& line) {
    curl_slist* const more = curl->slist_append(headers.get(), line.c_str());
    if (more != nullptr) (void)headers.release(), headers.reset(more);
  };
  header("Expect:");  // nobody waits for 100 Continue
  if (!call.body.empty()) header("Content-Type: application/json");
  if (!call.api_key.empty()) header("Authorization: Bearer " + call.api_key);
  for (const std::string& line : call.headers) header(line);
  if (call.seconds > 0) set(CURLOPT_TIMEOUT, call.seconds);
  set(CURLOPT_HTTPHEADER, headers.get());
  set(CURLOPT_WRITEFUNCTION, take_body);
  set(CURLOPT_WRITEDATA, &answer);
  set(CURLOPT_SOCKOPTFUNCTION, socket_is_open);
  set(CURLOPT_SOCKOPTDATA, &answer);
  set(CURLOPT_CLOSESOCKETFUNCTION, close_socket);
  set(CURLOPT_CLOSESOCKETDATA, socket);
  const CURLcode code = curl->easy_perform(handle.get());
  if (code != CURLE_OK && !answer.refused) {
    const char* const why = message[0] != 0 ? message.data() : "libcurl fails";
    const std::string place = call.unix_socket.empty() ? fmt::format("{}:{}", url.host, url.port) : call.unix_socket;
    return make_error(ErrorCode::kUnavailable, fmt::format("no answer from {}: {}", place, why));
  }
  long status = 0;
  curl->easy_getinfo(handle.get(), CURLINFO_RESPONSE_CODE, &status);
  return static_cast<int>(status);
}

}  // namespace tern::client
