// What PaddleNLP's native protocol says when it refuses (paddlenlp-server.md 2.3, 2.5): status 200, the verdict in
// error_code.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/error.h"
#include "json/json.h"
#include "serve/http/response.h"

namespace tern::serve::native {

inline constexpr int kRefused = 200;  // by the server
inline constexpr int kGateway = 500;  // the engine is not to be reached
inline constexpr int kFailed = 501;   // anything else, a timeout too

struct Refusal {
  int code = kRefused;
  std::string message;
  std::optional<std::string> req_id;
};

// The error object, on one line. `whole`: with "result", as an answer that is no stream has it.
std::string error_object(const Refusal& refusal, bool whole);
http::Response refuse(const Refusal& refusal, bool stream);
// What the engine or the server made of a request that had been admitted.
Refusal refusal_of(const Error& error, const std::string& req_id);
// Step 0b.
Refusal unexpected(std::string_view what);

// As Python prints a list of texts.
std::string python_list(std::span<const std::string> texts);

// A body of the wrong types, as FastAPI answers it: status 422 and one entry per fault.
class Faults {
 public:
  void add(std::string_view type, std::string_view field, std::string_view message, const json::Value& input);
  bool empty() const { return details_.empty(); }
  std::string first() const;  // "field: message"
  http::Response response() const;

 private:
  json::Array details_;
};
// A body that is no JSON.
http::Response invalid_json(std::string_view why);

}  // namespace tern::serve::native
