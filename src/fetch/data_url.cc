#include "fetch/data_url.h"

#include <algorithm>
#include <string>

#include "fetch/base64.h"
#include "fetch/percent.h"

namespace tern::fetch {
namespace {

Error malformed() { return make_error(ErrorCode::kInvalidArgument, "The data URL is malformed.", "url"); }
// Python's decoder, which the original uses, refuses a text without its padding, too.
Error bad_base64(std::string_view data) {
  const auto is_space = [](char c) { return c == ' ' || (c >= '\t' && c <= '\r'); };
  const auto letters =
      static_cast<size_t>(std::count_if(data.begin(), data.end(), [&](char c) { return !is_space(c); }));
  const bool padding = letters % 4 == 2 || letters % 4 == 3;
  return make_error(ErrorCode::kInvalidArgument,
                    padding ? "The data URL's base64 text lacks its padding (one or two = at its end), or letters."
                            : "The data URL's base64 text is damaged.",
                    "url");
}
Error too_large() { return make_error(ErrorCode::kTooLarge, "The data of the URL is larger than allowed.", "url"); }

bool equals_ignoring_case(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return (x >= 'A' && x <= 'Z' ? x + 32 : x) == y; });
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

Expected<std::vector<std::byte>> from_base64(std::string_view data, size_t max_bytes) {
  const auto not_data = [](char c) { return c == ' ' || c == '=' || (c >= '\t' && c <= '\r'); };
  // Only data beyond the limit is worth counting exactly; white space that is more than the data itself is no picture.
  if (data.size() / 4 > max_bytes / 2 + 64) return too_large();
  if (data.size() / 4 * 3 > max_bytes) {
    const auto letters = data.size() - static_cast<size_t>(std::count_if(data.begin(), data.end(), not_data));
    if (letters * 3 / 4 > max_bytes) return too_large();
  }
  auto out = decode_base64(data);
  if (!out) return bad_base64(data);
  if (out->size() > max_bytes) return too_large();
  return *std::move(out);
}

}  // namespace

Expected<std::vector<std::byte>> decode_data_url(std::string_view url, size_t max_bytes) {
  if (url.size() < 5 || !equals_ignoring_case(url.substr(0, 5), "data:")) return malformed();
  url.remove_prefix(5);
  const size_t comma = url.find(',');
  if (comma == std::string_view::npos) {
    return make_error(ErrorCode::kInvalidArgument, "The data URL has no comma before its data.", "url");
  }
  const std::string_view head = url.substr(0, comma), data = url.substr(comma + 1);
  const size_t last = head.rfind(';');
  const bool base64 = last != std::string_view::npos && equals_ignoring_case(trimmed(head.substr(last + 1)), "base64");
  // An escape makes one byte of three letters; four letters of base64 make three bytes.
  if (data.size() / 4 > max_bytes) return too_large();
  if (base64 && data.find('%') == std::string_view::npos) return from_base64(data, max_bytes);
  if (!base64) {
    const auto escapes = static_cast<size_t>(std::count(data.begin(), data.end(), '%'));
    if (data.size() > max_bytes + 2 * escapes) return too_large();
  }
  const auto plain = percent_decode(data);
  if (!plain) return malformed();
  if (base64) return from_base64(*plain, max_bytes);
  if (plain->size() > max_bytes) return too_large();
  const auto* bytes = reinterpret_cast<const std::byte*>(plain->data());
  return std::vector<std::byte>(bytes, bytes + plain->size());
}

}  // namespace tern::fetch
