#include "serve/core/trace_context.h"

#include <algorithm>

namespace tern::serve {
namespace {

bool is_hex(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}
bool is_zero(std::string_view text) { return text.find_first_not_of('0') == std::string_view::npos; }

}  // namespace

std::string checked_traceparent(std::string_view value) {
  constexpr size_t kLength = 55;  // 00-TRACE(32)-PARENT(16)-FLAGS(2)
  if (value.size() < kLength || value[2] != '-' || value[35] != '-' || value[52] != '-') return {};
  const std::string_view version = value.substr(0, 2), flags = value.substr(53, 2);
  // Later versions may append parts; version 00 has none, and ff is no version.
  if (value.size() > kLength && (version == "00" || value[kLength] != '-')) return {};
  const std::string_view trace = trace_id_of(value), parent = parent_id_of(value);
  const bool hex = is_hex(version) && is_hex(trace) && is_hex(parent) && is_hex(flags);
  if (!hex || version == "ff" || is_zero(trace) || is_zero(parent)) return {};
  return std::string(value.substr(0, kLength));
}

std::string traceparent_of(const json::Value& context) {
  if (context.is_string()) {
    const std::string_view text = context.get_string();
    if (!text.starts_with('{')) return checked_traceparent(text);
    const auto inner = json::parse(text, {.max_bytes = 4096, .max_depth = 4});
    return inner.ok() && inner->is_object() ? traceparent_of(*inner) : std::string();
  }
  const json::Object* object = context.if_object();
  const json::Value* value = object != nullptr ? json::find(*object, "traceparent") : nullptr;
  return value != nullptr && value->is_string() ? checked_traceparent(value->get_string()) : std::string();
}

bool is_sampled(std::string_view traceparent) {
  const char last = traceparent[54];
  const int digit = last <= '9' ? last - '0' : last - 'a' + 10;
  return (digit & 1) != 0;
}

}  // namespace tern::serve
