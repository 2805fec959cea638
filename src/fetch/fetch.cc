#include "fetch/fetch.h"

#include <algorithm>

#include "fetch/data_url.h"
#include "fetch/local_file.h"
#include "fetch/transport.h"
#include "fetch/url.h"

namespace tern::fetch {

namespace {

// What stands where a URL should, without a scheme.
Error no_scheme(std::string_view text) {
  const auto bad = [](const char* what) { return make_error(ErrorCode::kInvalidArgument, what, "url"); };
  const auto is_space = [](char c) { return c == ' ' || (c >= '\t' && c <= '\r'); };
  if (!text.empty() && is_space(text.front())) {
    return bad("The URL begins with white space; it must begin with data:, https:// or http://.");
  }
  const auto is_base64 = [&](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '+' || c == '/' ||
           c == '=' || is_space(c);
  };
  constexpr size_t kLeast = 64;
  if (text.size() >= kLeast && std::all_of(text.begin(), text.begin() + kLeast, is_base64)) {
    return bad("The URL is bare base64 text; put \"data:image/png;base64,\" (or the file's own type) before it.");
  }
  return bad("The URL has no scheme; it must begin with data:, https:// or http://.");
}

}  // namespace

Error no_room() {
  return make_error(ErrorCode::kResourceExhausted, "too many bytes of media are being fetched; try again later", "url");
}

Expected<std::vector<std::byte>> fetch(std::string_view url, const FetchPolicy& policy) {
  const std::string scheme = url_scheme(url);
  if (scheme.empty()) return no_scheme(url);
  if (scheme == "data") return decode_data_url(url, policy.max_bytes);
  if (scheme == "file") return read_local_file(url, policy.local_root, policy.max_bytes);
  return fetch_http(url, policy, system_seams());  // refuses every other scheme
}

}  // namespace tern::fetch
