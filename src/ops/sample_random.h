// Random numbers of sampling: Philox4x32-10 (Salmon, Moraes, Dror, Shaw 2011), keyed by what is sampled, not by when.
#pragma once

#include <array>
#include <cstdint>

namespace tern::ops {

constexpr std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> c, std::array<uint32_t, 2> k) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53u} * c[0], b = uint64_t{0xCD9E8D57u} * c[2];
    c = {static_cast<uint32_t>(b >> 32) ^ c[1] ^ k[0], static_cast<uint32_t>(b),
         static_cast<uint32_t>(a >> 32) ^ c[3] ^ k[1], static_cast<uint32_t>(a)};
    k[0] += 0x9E3779B9u, k[1] += 0xBB67AE85u;
  }
  return c;
}

// 64 uniform bits for the token at absolute position `position` of a sequence; `draw` counts further numbers of that
// place (speculation).
constexpr uint64_t random_bits(uint64_t seed, uint32_t position, uint32_t draw) {
  const auto r = philox4x32({position, draw, 0, 0}, {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  return r[0] | static_cast<uint64_t>(r[1]) << 32;
}

}  // namespace tern::ops
