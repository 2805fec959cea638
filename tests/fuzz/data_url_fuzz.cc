// data: URLs and base64: vector and plain code agree, and no result is beyond the limit.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/cpu_isa.h"
#include "fetch/base64.h"
#include "fetch/data_url.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tern::fetch;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const size_t limit : {size_t{0}, size_t{50}, size_t{100000}}) {
    for (const char* head : {"", "data:,", "data:image/png;base64,"}) {
      const auto out = decode_data_url(head + std::string(text), limit);
      if (out.ok() && out->size() > limit) std::abort();
    }
  }
#if defined(__x86_64__)
  if (tern::detect_isa() >= tern::Isa::kAvx2) {
    std::vector<uint8_t> a(size / 4 * 3 + 16), b(size / 4 * 3 + 16);
    const size_t read = internal::decode_groups(data, size, a.data());
    if (internal::decode_groups_avx2(data, size, b.data()) != read) std::abort();
    a.resize(read / 4 * 3);
    b.resize(read / 4 * 3);
    if (a != b) std::abort();
  }
#endif
  return 0;
}
