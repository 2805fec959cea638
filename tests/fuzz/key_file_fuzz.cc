// The file of API keys: it is refused, or every key is one that a header can carry.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "app/access/key_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto keys = tern::app::parse_keys({reinterpret_cast<const char*>(data), size});
  if (!keys.ok()) return keys.error().message.empty() ? (std::abort(), 0) : 0;
  if (keys->empty() || keys->size() > tern::app::kMostKeys) std::abort();
  for (const std::string& key : *keys) {
    if (key.empty() || key.size() > tern::app::kLongestKey || key.front() == '#') std::abort();
    for (const char c : key) {
      if (c <= 0x20 || c >= 0x7f) std::abort();
    }
  }
  return 0;
}
