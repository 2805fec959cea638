#include "serve/native/errors.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/clock.h"

namespace tern::serve::native {

std::string error_object(const Refusal& refusal, bool whole) {
  std::string out = "{\"req_id\":";
  if (refusal.req_id)
    json::append_quoted(out, *refusal.req_id);
  else
    out += "null";
  out += ",\"error_msg\":";
  json::append_quoted(out, refusal.message);
  out += fmt::format(",\"error_code\":{},\"version\":\"4.6\",\"timestamp\":", refusal.code);
  json::append_double(out, wall_seconds());
  if (whole) out += ",\"result\":\"\"";
  return out + '}';
}

http::Response refuse(const Refusal& refusal, bool stream) {
  http::Response response = http::json_response(200, error_object(refusal, !stream));
  if (!stream) return response;
  response.content_type = "text/event-stream; charset=utf-8";
  response.body += '\n';
  return response;
}

Refusal refusal_of(const Error& error, const std::string& req_id) {
  switch (error.code) {
    case ErrorCode::kCancelled:
      return {error.param == "timeout" ? kFailed : kRefused, error.message, req_id};
    case ErrorCode::kUnavailable:
    case ErrorCode::kInternal:
      return {kGateway, fmt::format("status is StatusCode.UNAVAILABLE, msg is {}", error.message), req_id};
    default:
      return {kRefused, fmt::format("Error happend while insert task to engine: {}, (no stack trace).", error.message),
              req_id};
  }
}

Refusal unexpected(std::string_view what) {
  return {
      kRefused,
      fmt::format("Unexcepted promblem happend while insert new task to server task queue: {}, (no stack trace)", what),
      std::nullopt};
}

std::string python_list(std::span<const std::string> texts) {
  std::string out = "[";
  for (const std::string& text : texts) {
    if (out.size() > 1) out += ", ";
    const bool single = text.find('\'') != std::string::npos, two = text.find('"') != std::string::npos;
    const char quote = single && !two ? '"' : '\'';
    out += quote;
    for (const char c : text) {
      if (c == quote || c == '\\') out += '\\';
      out += c;
    }
    out += quote;
  }
  return out + ']';
}

void Faults::add(std::string_view type, std::string_view field, std::string_view message, const json::Value& input) {
  details_.push_back(
      json::Object{{"type", type}, {"loc", json::Array{"body", field}}, {"msg", message}, {"input", input}});
}

std::string Faults::first() const {
  const json::Object& fault = details_.front().get_object();
  return fmt::format("{}: {}", std::string_view(fault.at("loc").at(1).get_string()),
                     std::string_view(fault.at("msg").get_string()));
}

http::Response Faults::response() const {
  return http::json_response(422, json::dump(json::Object{{"detail", details_}}));
}

http::Response invalid_json(std::string_view why) {
  const json::Object fault{{"type", "json_invalid"},
                           {"loc", json::Array{"body", 0}},
                           {"msg", "JSON decode error"},
                           {"input", json::Object()},
                           {"ctx", json::Object{{"error", why}}}};
  return http::json_response(422, json::dump(json::Object{{"detail", json::Array{fault}}}));
}

}  // namespace tern::serve::native
