// The memory of packed weights, which can go and come again at its addresses,
// and what a later read of the weights has to fit.
#pragma once

#include <memory>

#include "base/hash.h"
#include "device/device.h"
#include "json/json.h"

namespace tern::model {

struct WeightMemory {
  std::unique_ptr<device::AddressRange> range;
  size_t bytes = 0;     // that are used
  Hash128 layout;       // of all targets: places, formats, widths
  json::Object config;  // config.json as the weights came with it
  Hash128 scales;       // of the quantized cache, as they came with the weights

  char* data() const { return range != nullptr ? range->base() : nullptr; }
  // Gives all of it back. Nobody may be reading there.
  Status give_back() { return range != nullptr ? range->shrink(0) : Status(); }
};

}  // namespace tern::model
