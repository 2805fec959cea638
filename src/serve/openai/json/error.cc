#include "serve/openai/json/error.h"

#include "json/json.h"

namespace tern::serve::openai {
namespace {

ErrorFace face_of(const Error& error) {
  switch (error.code) {
    case ErrorCode::kInvalidArgument:
      if (error.param == "messages" && error.message == "Field required") {
        return {400, "invalid_request_error", "missing_required_parameter"};
      }
      return {400, "invalid_request_error", "invalid_value"};
    case ErrorCode::kTooLarge:
      return {400, "invalid_request_error", "context_length_exceeded"};
    case ErrorCode::kNotFound:
      return {400, "invalid_request_error", "model_not_support"};
    case ErrorCode::kUnsupported:
    case ErrorCode::kCorrupt:
      return {400, "invalid_request_error", "invalid_value"};
    case ErrorCode::kResourceExhausted:
      return {429, "server_error", "internal_error"};
    case ErrorCode::kUnavailable:
      return {503, "api_connection_error", "connection_error"};
    case ErrorCode::kCancelled:
      return {408, "timeout_error", "timeout"};
    case ErrorCode::kIo:
    case ErrorCode::kInternal:
      break;
  }
  return {500, "internal_error", "internal_error"};
}

}  // namespace

std::string error_json(const Error& error) {
  const ErrorFace face = face_of(error);
  std::string out = "{\"error\":{\"message\":";
  json::append_quoted(out, error.message);
  out += ",\"type\":\"";
  out += face.type;
  out += "\",\"param\":";
  if (error.param.empty())
    out += "null";
  else
    json::append_quoted(out, error.param);
  out += ",\"code\":\"";
  out += face.code;
  out += "\"}}";
  return out;
}

http::Response busy_response(std::string message) {
  http::Response response = error_response({ErrorCode::kUnavailable, std::move(message), {}});
  response.extra_headers = "retry-after: 1\r\n";
  return response;
}

http::Response error_response(const Error& error, bool original_status) {
  const int status = face_of(error).status;
  http::Response response = http::json_response(original_status && status != 503 ? 500 : status, error_json(error));
  // The place of a picture is known to OpenAI's form by `param` alone.
  const bool placed = error.param.find('[') != std::string::npos && !error.message.starts_with(error.param);
  response.problem = placed ? error.param + ": " + error.message : error.message;
  return response;
}

}  // namespace tern::serve::openai
