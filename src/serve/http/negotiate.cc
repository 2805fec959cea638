#include "serve/http/negotiate.h"

#include <algorithm>

#include "serve/http/chars.h"

namespace tern::serve::http {
namespace {

// The first item of a comma-separated list, which is taken off it.
std::string_view next_item(std::string_view& list) {
  const size_t end = std::min(list.find(','), list.size());
  const std::string_view item = trim(list.substr(0, end));
  list.remove_prefix(std::min(end + 1, list.size()));
  return item;
}

// ";q=0", ";q=0.0", ... : the coding is refused. What is no weight is none.
bool refused(std::string_view parameters) {
  parameters = trim(parameters);
  if (!starts_lower(parameters, "q=")) return false;
  const std::string_view weight = trim(parameters.substr(2));
  return !weight.empty() && std::all_of(weight.begin(), weight.end(), [](char c) { return c == '0' || c == '.'; });
}

}  // namespace

bool accepts_gzip(std::string_view accept_encoding) {
  while (!accept_encoding.empty()) {
    const std::string_view item = next_item(accept_encoding);
    const size_t semicolon = std::min(item.find(';'), item.size());
    const std::string_view name = trim(item.substr(0, semicolon));
    if (!equals_lower(name, "gzip") && !equals_lower(name, "x-gzip")) continue;
    return semicolon == item.size() || !refused(item.substr(semicolon + 1));
  }
  return false;
}

bool names_tag(std::string_view if_none_match, std::string_view etag) {
  if (trim(if_none_match) == "*") return true;
  while (!if_none_match.empty()) {
    std::string_view item = next_item(if_none_match);
    if (item.starts_with("W/")) item.remove_prefix(2);
    if (!etag.empty() && item == etag) return true;
  }
  return false;
}

}  // namespace tern::serve::http
