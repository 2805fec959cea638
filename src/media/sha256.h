// SHA-256 (FIPS 180-4), for names of pictures that users compare with other pipelines. Not a fast path.
#pragma once

#include <cstddef>
#include <string>

namespace tern::media {

std::string sha256_hex(const void* data, size_t size);  // 64 lower-case digits

}  // namespace tern::media
