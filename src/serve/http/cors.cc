#include "serve/http/cors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "serve/http/chars.h"
#include "serve/http/target.h"

namespace tern::serve::http {
namespace {

constexpr const char* kAllMethods[] = {"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"};
constexpr const char* kSafeHeaders[] = {"accept", "accept-language", "content-language", "content-type"};
constexpr int kMaxAge = 600;  // seconds a browser may remember a preflight

bool has(const std::vector<std::string>& list, std::string_view text) {
  return std::find(list.begin(), list.end(), text) != list.end();
}

bool is_origin(std::string_view text) {
  const size_t scheme = text.find("://");
  return scheme != std::string_view::npos && scheme > 0 && is_token(text.substr(0, scheme)) &&
         is_authority(text.substr(scheme + 3));
}

// The items of a comma-separated header.
std::vector<std::string_view> items(std::string_view list) {
  std::vector<std::string_view> out;
  while (!list.empty()) {
    const size_t end = std::min(list.find(','), list.size());
    if (const auto item = trim(list.substr(0, end)); !item.empty()) out.push_back(item);
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return out;
}

}  // namespace

Status check(const CorsRules& rules) {
  const auto wrong = [](std::string message, const char* flag) {
    return make_error(ErrorCode::kInvalidArgument, fmt::format("--{} {}", flag, message), flag);
  };
  if (rules.origins.empty()) {
    const CorsRules plain;
    if (rules.credentials) return wrong("has no effect without --allowed-origins", "allow-credentials");
    if (rules.methods != plain.methods) return wrong("has no effect without --allowed-origins", "allowed-methods");
    if (rules.headers != plain.headers) return wrong("has no effect without --allowed-origins", "allowed-headers");
    return {};
  }
  if (rules.credentials && has(rules.origins, "*")) {
    return wrong("\"*\" cannot be combined with --allow-credentials: name the origins", "allowed-origins");
  }
  for (const auto& origin : rules.origins) {
    if (origin == "*" || origin == "null" || is_origin(origin)) continue;
    return wrong(fmt::format("\"{}\" is no origin: scheme://host or scheme://host:port, without a path", origin),
                 "allowed-origins");
  }
  for (const auto& method : rules.methods) {
    const bool known = std::find(std::begin(kAllMethods), std::end(kAllMethods), method) != std::end(kAllMethods);
    if (method != "*" && !known) {
      return wrong(fmt::format("\"{}\" is none of {}, *", method, fmt::join(kAllMethods, ", ")), "allowed-methods");
    }
  }
  for (const auto& header : rules.headers) {
    if (!is_token(header)) return wrong(fmt::format("\"{}\" is no name of a header", header), "allowed-headers");
  }
  return {};
}

Cors::Cors(CorsRules rules)
    : rules_(std::move(rules)),
      any_origin_(has(rules_.origins, "*")),
      any_method_(has(rules_.methods, "*")),
      any_header_(has(rules_.headers, "*")) {
  for (auto& header : rules_.headers) std::transform(header.begin(), header.end(), header.begin(), lower);
}

bool Cors::is_preflight(const Head& head) const {
  return on() && head.method == Method::kOptions && !head.origin.empty() && !head.cors_method.empty();
}

bool Cors::allows_origin(std::string_view origin) const {
  return !origin.empty() && (any_origin_ || has(rules_.origins, origin));
}

std::string Cors::origin_headers(const Head& head) const {
  std::string out = any_origin_ ? "" : "vary: Origin\r\n";
  if (!allows_origin(head.origin)) return out;
  out += fmt::format("access-control-allow-origin: {}\r\n", any_origin_ ? "*" : head.origin);
  if (rules_.credentials) out += "access-control-allow-credentials: true\r\n";
  return out;
}

std::string Cors::answer_headers(const Head& head) const {
  if (!on()) return {};
  std::string out = origin_headers(head);
  if (allows_origin(head.origin)) out += "access-control-expose-headers: x-request-id\r\n";
  return out;
}

Response Cors::preflight(const Head& head) const {
  std::vector<std::string_view> refused;
  if (!allows_origin(head.origin)) refused.push_back("origin");
  if (!any_method_ && !has(rules_.methods, head.cors_method)) refused.push_back("method");
  std::vector<std::string> asked;
  bool headers_fit = true;
  for (const std::string_view item : items(head.cors_headers)) {
    std::string name(item);
    std::transform(name.begin(), name.end(), name.begin(), lower);
    const bool safe = std::find(std::begin(kSafeHeaders), std::end(kSafeHeaders), name) != std::end(kSafeHeaders);
    headers_fit &= is_token(name) && (any_header_ || safe || has(rules_.headers, name));
    asked.push_back(std::move(name));
  }
  if (!headers_fit) refused.push_back("headers");
  if (!refused.empty()) {
    Response response = text_response(400, fmt::format("Disallowed CORS {}", fmt::join(refused, ", ")));
    response.extra_headers = "vary: Origin\r\n";
    return response;
  }
  Response response = text_response(200, "OK");
  response.extra_headers = origin_headers(head);
  if (any_method_)
    response.extra_headers += fmt::format("access-control-allow-methods: {}\r\n", fmt::join(kAllMethods, ", "));
  else
    response.extra_headers += fmt::format("access-control-allow-methods: {}\r\n", fmt::join(rules_.methods, ", "));
  if (!asked.empty())
    response.extra_headers += fmt::format("access-control-allow-headers: {}\r\n", fmt::join(asked, ", "));
  response.extra_headers += fmt::format("access-control-max-age: {}\r\n", kMaxAge);
  return response;
}

}  // namespace tern::serve::http
