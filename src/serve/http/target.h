// Request targets (RFC 9112, 3.2).
#pragma once

#include <string>
#include <string_view>

namespace tern::serve::http {

// The path of an origin-form target: percent escapes resolved once. False for anything that could name one resource in
// two ways: empty or dot segments, escapes that hide '/', '\\', '.', '%' or control characters, absolute form, '#'.
bool parse_target(std::string_view target, std::string& path, std::string& query);

// A host with an optional port, as it may stand in a URL: no user, no escapes, nothing that ends a header or a URL.
bool is_authority(std::string_view text);

// Splits the absolute form (http://host/path?query) into the origin form and the authority. False when `target` is not
// of that form; an authority that is not one makes `origin` empty, which parse_target() refuses.
bool split_absolute(std::string_view target, std::string& origin, std::string& authority);

// Resolves every percent escape once, '/' and '.' too: for the rest of a path that is only compared with names, never
// routed. False for broken escapes and for control characters.
bool decode_name(std::string_view raw, std::string& name);

}  // namespace tern::serve::http
