// JSON with limits: what parses must print and parse again. (Not to the same text: Boost.JSON 1.81 reads some doubles
// one unit in the last place off.)
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "json/json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto value = tern::json::parse(text, {.max_bytes = 1 << 20, .max_depth = 32});
  if (!value.ok()) return 0;
  (void)tern::json::dump(*value);
  if (const auto* object = value->if_object()) {
    for (const auto& member : *object) {
      (void)tern::json::get_int(*object, member.key()).ok();
      (void)tern::json::get_double(*object, member.key()).ok();
      (void)tern::json::get_string(*object, member.key()).ok();
    }
  }
  std::string quoted;
  tern::json::append_quoted(quoted, text);
  if (!tern::json::parse(quoted).ok()) std::abort();
  return 0;
}
