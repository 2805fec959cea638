// What a client can take of a file that never changes while the server runs (RFC 9110, 12.5.3 and 13.1.2).
#pragma once

#include <string_view>

namespace tern::serve::http {

// Whether an Accept-Encoding names gzip with a weight above 0. An empty header, or "*" alone, does not.
bool accepts_gzip(std::string_view accept_encoding);

// Whether an If-None-Match holds `etag` (with its quotes), compared weakly, or is "*".
bool names_tag(std::string_view if_none_match, std::string_view etag);

}  // namespace tern::serve::http
