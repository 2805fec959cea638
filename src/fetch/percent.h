// Percent escapes (RFC 3986 section 2.1).
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tern::fetch {

// Nothing when a '%' is not followed by two hexadecimal digits.
std::optional<std::string> percent_decode(std::string_view text);

}  // namespace tern::fetch
