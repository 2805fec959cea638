// A file of packed weights that an earlier start has kept: whatever passes the checks lies inside the file.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "model/weights/load_cache.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tern::model;
  const std::string_view file(reinterpret_cast<const char*>(data), size);
  // The last byte says how much of the file stands behind what was given.
  const uint64_t behind = size == 0 ? 0 : uint64_t{data[size - 1]} << (data[size - 1] % 57);
  for (const uint64_t all : {uint64_t{size}, size + behind}) {
    const auto head = parse_load_cache(file, all);
    if (!head.ok()) continue;
    const uint64_t chunks = head->bytes / kCacheChunk + (head->bytes % kCacheChunk != 0);
    if (head->begin > size || head->begin + head->bytes != all || head->sums.size() != 8 * chunks) std::abort();
    for (const std::string_view part : {head->key, head->sums})
      if (part.data() < file.data() || part.data() + part.size() > file.data() + head->begin) std::abort();
  }
  return 0;
}
