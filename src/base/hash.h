// 128-bit keyed hash (SipHash-2-4 with 128-bit output; Aumasson and Bernstein 2012). Keyed, so that a client cannot
// construct colliding prefixes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace tern {

struct Hash128 {
  uint64_t lo = 0, hi = 0;
  friend bool operator==(const Hash128&, const Hash128&) = default;
};

struct HashKey {
  uint64_t k0 = 0, k1 = 0;
};

Hash128 siphash128(HashKey key, const void* data, size_t bytes);
// A key from the operating system's random source.
HashKey random_hash_key();

}  // namespace tern

template <>
struct std::hash<tern::Hash128> {
  size_t operator()(const tern::Hash128& h) const noexcept { return static_cast<size_t>(h.lo); }
};
