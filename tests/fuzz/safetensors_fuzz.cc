// A safetensors file: whatever passes the checks must lie inside the file, without overlap, and fill its shape.
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <utility>
#include <vector>

#include <algorithm>

#include "model/files/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tern::model;
  const auto header = parse_safetensors({reinterpret_cast<const char*>(data), size}, size);
  if (!header.ok()) return 0;
  std::vector<std::pair<uint64_t, uint64_t>> ranges;
  for (const auto& [name, t] : header->tensors) {
    uint64_t elements = 1;
    for (int64_t d : t.shape) elements *= static_cast<uint64_t>(d);
    if (t.end > size || t.begin > t.end || elements * file_type_bytes(t.dtype) != t.end - t.begin) std::abort();
    ranges.emplace_back(t.begin, t.end);
  }
  std::sort(ranges.begin(), ranges.end());
  for (size_t i = 1; i < ranges.size(); ++i)
    if (ranges[i].first != ranges[i - 1].second) std::abort();
  return 0;
}
