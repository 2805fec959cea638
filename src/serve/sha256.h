// SHA-256 (FIPS 180-4): API keys are compared by digest.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace tern::serve {
using Digest = std::array<uint8_t, 32>;
Digest sha256(std::string_view data);
// Time does not depend on where the digests differ.
bool equal_digests(const Digest& a, const Digest& b);
}  // namespace tern::serve
