// The key of a server that only this process talks to.
#pragma once

#include <fmt/format.h>

#include <string>

#include "base/hash.h"

namespace tern::app {

// 32 hexadecimal digits that nobody else knows.
inline std::string private_key() {
  const Hash128 random = siphash128(random_hash_key(), "tern", 4);
  return fmt::format("{:016x}{:016x}", random.lo, random.hi);
}

}  // namespace tern::app
