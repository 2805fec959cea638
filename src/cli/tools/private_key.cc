#include "cli/tools/private_key.h"

#include <fmt/format.h>

#include "base/hash.h"

namespace tern::cli {

std::string private_key() {
  const Hash128 random = siphash128(random_hash_key(), "tern", 4);
  return fmt::format("{:016x}{:016x}", random.lo, random.hi);
}

}  // namespace tern::cli
