// Cross-origin requests of web pages (the CORS protocol of the Fetch standard), off unless origins are named.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "serve/http/request.h"
#include "serve/http/response.h"

namespace tern::serve::http {

struct CorsRules {
  std::vector<std::string> origins;       // "https://app.example", or "*" for all; empty: off
  std::vector<std::string> methods{"*"};  // "*": all
  std::vector<std::string> headers{"*"};  // "*": all; the safelisted ones pass always
  bool credentials = false;               // cookies and the like; not together with "*"
};
// kInvalidArgument: what no browser would take, or what would open the server to every page with the user's rights;
// `param` names the flag.
Status check(const CorsRules& rules);

class Cors {
 public:
  explicit Cors(CorsRules rules);
  bool on() const { return !rules_.origins.empty(); }
  // A browser asks before the request itself, and sends no key with the question.
  bool is_preflight(const Head& head) const;
  Response preflight(const Head& head) const;  // 200, or 400 that says what is not allowed
  // Header lines of every other answer.
  std::string answer_headers(const Head& head) const;

 private:
  bool allows_origin(std::string_view origin) const;
  std::string origin_headers(const Head& head) const;

  CorsRules rules_;
  bool any_origin_ = false, any_method_ = false, any_header_ = false;
};

}  // namespace tern::serve::http
