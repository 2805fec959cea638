// data: URLs (RFC 2397).
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace tern::fetch {

// data:[media type][;parameters][;base64],DATA. The media type is not looked at: what the bytes are is the decoder's to
// find out. Errors: kInvalidArgument (no comma, bad base64, bad percent escape), kTooLarge when the result would have
// more than max_bytes (found before anything is decoded or allocated).
Expected<std::vector<std::byte>> decode_data_url(std::string_view url, size_t max_bytes);

}  // namespace tern::fetch
