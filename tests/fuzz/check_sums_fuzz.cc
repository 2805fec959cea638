// The list of sums beside weights.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "model/files/check_sums.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto sums = tern::model::parse_sums({reinterpret_cast<const char*>(data), size});
  if (!sums.ok()) return 0;
  for (const auto& [name, sum] : *sums) {
    if (name.empty() || sum.size() != 64) std::abort();
  }
  return 0;
}
