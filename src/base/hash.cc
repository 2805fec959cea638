#include "base/hash.h"

#include <sys/random.h>

#include <bit>
#include <cstring>

#include "base/check.h"

namespace tern {
namespace {

struct SipState {
  uint64_t v0, v1, v2, v3;
  void round() {
    v0 += v1, v1 = std::rotl(v1, 13), v1 ^= v0, v0 = std::rotl(v0, 32);
    v2 += v3, v3 = std::rotl(v3, 16), v3 ^= v2;
    v0 += v3, v3 = std::rotl(v3, 21), v3 ^= v0;
    v2 += v1, v1 = std::rotl(v1, 17), v1 ^= v2, v2 = std::rotl(v2, 32);
  }
};

}  // namespace

Hash128 siphash128(HashKey key, const void* data, size_t bytes) {
  SipState s{key.k0 ^ 0x736f6d6570736575ULL, key.k1 ^ 0x646f72616e646f6dULL ^ 0xee, key.k0 ^ 0x6c7967656e657261ULL,
             key.k1 ^ 0x7465646279746573ULL};
  const auto* p = static_cast<const unsigned char*>(data);
  const size_t whole = bytes / 8;
  for (size_t i = 0; i < whole; ++i) {
    uint64_t m;
    std::memcpy(&m, p + 8 * i, 8);
    s.v3 ^= m;
    s.round(), s.round();
    s.v0 ^= m;
  }
  uint64_t tail = static_cast<uint64_t>(bytes) << 56;
  for (size_t i = 0; i < bytes % 8; ++i) tail |= static_cast<uint64_t>(p[8 * whole + i]) << (8 * i);
  s.v3 ^= tail;
  s.round(), s.round();
  s.v0 ^= tail;
  s.v2 ^= 0xee;
  for (int i = 0; i < 4; ++i) s.round();
  Hash128 out;
  out.lo = s.v0 ^ s.v1 ^ s.v2 ^ s.v3;
  s.v1 ^= 0xdd;
  for (int i = 0; i < 4; ++i) s.round();
  out.hi = s.v0 ^ s.v1 ^ s.v2 ^ s.v3;
  return out;
}

HashKey random_hash_key() {
  HashKey key;
  TERN_CHECK(getrandom(&key, sizeof key, 0) == static_cast<ssize_t>(sizeof key));
  return key;
}

}  // namespace tern
