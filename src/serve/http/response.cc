#include "serve/http/response.h"

#include <fmt/format.h>

#include <ctime>

namespace tern::serve::http {
namespace {

// "Date: ...\r\n" of this second; made anew when the second changes.
std::string_view date_line() {
  thread_local time_t made_at = 0;
  thread_local std::string line;
  const time_t now = time(nullptr);
  if (now != made_at) {
    tm utc{};
    gmtime_r(&now, &utc);
    char text[64];
    const size_t n = strftime(text, sizeof text, "date: %a, %d %b %Y %H:%M:%S GMT\r\n", &utc);
    line.assign(text, n);
    made_at = now;
  }
  return line;
}

std::string_view reason_phrase(int status) {
  switch (status) {
    case 100:
      return "Continue";
    case 200:
      return "OK";
    case 204:
      return "No Content";
    case 304:
      return "Not Modified";
    case 307:
      return "Temporary Redirect";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 413:
      return "Content Too Large";
    case 415:
      return "Unsupported Media Type";
    case 417:
      return "Expectation Failed";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    case 505:
      return "HTTP Version Not Supported";
    default:
      return "Unknown";
  }
}

// false for 1xx, 204, 304
bool status_has_body(int status) { return status >= 200 && status != 204 && status != 304; }

}  // namespace

void append_head(std::string& out, const Response& response, std::optional<size_t> length, bool chunked,
                 bool keep_alive, int minor_version) {
  fmt::format_to(std::back_inserter(out), "HTTP/1.1 {} {}\r\nserver: tern\r\n", response.status,
                 reason_phrase(response.status));
  out += date_line();
  if (status_has_body(response.status)) {
    if (!response.content_type.empty()) {
      out += "content-type: ";
      out += response.content_type;
      out += "\r\n";
    }
    if (length)
      fmt::format_to(std::back_inserter(out), "content-length: {}\r\n", *length);
    else if (chunked)
      out += "transfer-encoding: chunked\r\n";
  }
  out += response.extra_headers;
  if (!keep_alive)
    out += "connection: close\r\n";
  else if (minor_version == 0)
    out += "connection: keep-alive\r\n";
  out += "\r\n";
}

void append_response(std::string& out, const Response& response, bool head_request, bool keep_alive,
                     int minor_version) {
  append_head(out, response, response.body.size(), false, keep_alive, minor_version);
  if (!head_request && status_has_body(response.status)) out += response.body;
}

Response json_response(int status, std::string body) {
  return {status, "application/json", std::move(body), {}, false};
}

Response text_response(int status, std::string body) {
  return {status, body.empty() ? "" : "text/plain; charset=utf-8", std::move(body), {}, false};
}

}  // namespace tern::serve::http
