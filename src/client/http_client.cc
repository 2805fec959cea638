#include "client/http_client.h"

#include <fmt/format.h>

#include <array>
#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <charconv>

namespace tern::client {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
constexpr size_t kMaxLine = 1u << 20;

Error unreachable(const Url& url, const boost::system::error_code& error) {
  return make_error(ErrorCode::kUnavailable,
                    fmt::format("no answer from {}:{}: {}", url.host, url.port, error.message()));
}

}  // namespace

Expected<Url> parse_url(std::string_view text) {
  auto wrong = [&](const char* what) {
    return make_error(ErrorCode::kInvalidArgument, fmt::format("{} is no URL this program can use: {}", text, what),
                      "url");
  };
  constexpr std::string_view kScheme = "http://";
  std::string_view rest = text;
  if (rest.starts_with("https://")) return wrong("https needs a proxy in front, use http://");
  if (!rest.starts_with(kScheme)) return wrong("it does not begin with http://");
  rest.remove_prefix(kScheme.size());
  Url url;
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
  const std::string host = url.host.find(':') == std::string::npos ? url.host : "[" + url.host + "]";
  std::string text = fmt::format("{} {}{} HTTP/1.1\r\nHost: {}:{}\r\nAccept: */*\r\n", call.method, url.path, call.path,
                                 host, url.port);
  if (!keep_alive) text += "Connection: close\r\n";
  if (!call.api_key.empty()) text += fmt::format("Authorization: Bearer {}\r\n", call.api_key);
  if (!call.body.empty())
    text += fmt::format("Content-Type: application/json\r\nContent-Length: {}\r\n", call.body.size());
  return text + "\r\n" + call.body;
}

Expected<int> http_call(const Url& url, const HttpCall& call, const std::function<bool(std::string_view)>& on_body,
                        std::atomic<int>* socket) {
  asio::io_context context;
  asio::ip::tcp::socket connection(context);
  boost::system::error_code error;
  const auto addresses = asio::ip::tcp::resolver(context).resolve(url.host, url.port, error);
  if (!error) asio::connect(connection, addresses, error);
  if (error) return unreachable(url, error);
  struct Guard {  // the handler must not see a descriptor that is closed
    std::atomic<int>* place;
    ~Guard() {
      if (place != nullptr) place->store(-1);
    }
  } const guard{socket};
  if (socket != nullptr) socket->store(connection.native_handle());
  connection.set_option(asio::ip::tcp::no_delay(true), error);
  asio::write(connection, asio::buffer(request_text(url, call, false)), error);
  if (error) return unreachable(url, error);

  beast::flat_buffer buffer;
  http::response_parser<http::buffer_body> parser;
  parser.body_limit(boost::none);
  http::read_header(connection, buffer, parser, error);
  if (error) return unreachable(url, error);
  std::array<char, 16384> piece{};
  while (!parser.is_done()) {
    parser.get().body() = {piece.data(), piece.size(), true};
    http::read_some(connection, buffer, parser, error);
    if (error == http::error::need_buffer) error = {};
    if (error && error != http::error::end_of_stream) return unreachable(url, error);
    const size_t got = piece.size() - parser.get().body().size;
    if (got != 0 && !on_body({piece.data(), got})) break;
    if (error) break;
  }
  return static_cast<int>(parser.get().result_int());
}

}  // namespace tern::client
