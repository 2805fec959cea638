// Base64 decoding for data: URLs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace tern::fetch {

// RFC 4648 section 4 with its padding; spaces, tabs and line ends may stand anywhere. Other characters, characters
// after the padding and a wrong number of them are errors (Python's b64decode skips what it does not know, so that a
// damaged picture becomes another picture).
std::optional<std::vector<std::byte>> decode_base64(std::string_view text);

namespace internal {
// Decodes whole groups of four letters from the start of `text` until something else stands there. Returns the number
// of letters read; three bytes were written for every four, and `out` has room for size / 4 * 3.
size_t decode_groups(const uint8_t* text, size_t size, uint8_t* out);
size_t decode_groups_avx2(const uint8_t* text, size_t size, uint8_t* out);
}  // namespace internal

}  // namespace tern::fetch
