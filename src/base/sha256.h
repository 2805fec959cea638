// SHA-256 (FIPS 180-4): API keys are compared by digest, pictures are named by it. Not a fast path.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace tern {

using Digest = std::array<uint8_t, 32>;
Digest sha256(std::string_view data);
// Time does not depend on where the digests differ.
bool equal_digests(const Digest& a, const Digest& b);
std::string sha256_hex(const void* data, size_t size);  // 64 lower-case digits

}  // namespace tern
