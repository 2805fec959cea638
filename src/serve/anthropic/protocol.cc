#include "serve/anthropic/protocol.h"

#include "json/json.h"
#include "serve/anthropic/request.h"
#include "serve/anthropic/writer.h"

namespace tern::serve::anthropic {
namespace {

std::string_view error_type(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 408:
      return "timeout_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 503:
      return "overloaded_error";
    default:
      return status < 500 ? "invalid_request_error" : "api_error";
  }
}

}  // namespace

std::string error_body(int status, std::string_view message) {
  std::string out = "{\"type\":\"error\",\"error\":{\"type\":\"";
  out += error_type(status);
  out += "\",\"message\":";
  json::append_quoted(out, message);
  return out + "}}";
}

std::string count_body(size_t tokens) { return "{\"input_tokens\":" + std::to_string(tokens) + "}"; }

const Protocol kMessages{
    .read = [](json::Value body, const ServeConfig& config) { return read_request(std::move(body), config); },
    .make_writer = make_writer};

}  // namespace tern::serve::anthropic
