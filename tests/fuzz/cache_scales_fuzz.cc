// kv_cache_scale.json of any bytes: an error, or scales of every layer that are positive numbers.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "model/quantized/cache_scales.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > 1 << 16) return 0;
  const tern::model::CacheScaleShape shape{2, 1, 2, 4, 127.0f};
  const auto scales = tern::model::parse_cache_scales({reinterpret_cast<const char*>(data), size}, shape);
  if (!scales.ok()) {
    if (scales.error().message.empty()) std::abort();
    return 0;
  }
  const size_t each = scales->channels ? 16 : 4;
  if (scales->k.size() != each || scales->v.size() != each) std::abort();
  for (const auto* list : {&scales->k, &scales->v})
    for (const float v : *list)
      if (!(v > 0.0f) || !std::isfinite(v)) std::abort();
  return 0;
}
