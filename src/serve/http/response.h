// HTTP/1.1 responses to bytes.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace tern::serve::http {

struct Response {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  std::string extra_headers;  // whole lines, each with its CRLF
  bool close = false;         // the connection cannot go on after this one
  std::string problem = {};   // of an error, in words: for routes whose errors have another form
};

// Appends the status line and headers. Without a length the body is chunked when `chunked`, else it ends with the
// connection. `head_only` still says the length.
void append_head(std::string& out, const Response& response, std::optional<size_t> length, bool chunked,
                 bool keep_alive, int minor_version);
// Appends a whole response; a HEAD request gets no body.
void append_response(std::string& out, const Response& response, bool head_request, bool keep_alive, int minor_version);

Response json_response(int status, std::string body);
Response text_response(int status, std::string body);

}  // namespace tern::serve::http
