// Whole blocks of the paged cache.
#pragma once

#include "base/error.h"
#include "device/device.h"
#include "device/kv_layout.h"

namespace tern::ops {

// Copies block `from` to block `to` of one layer (copy on write): block b starts at base + b * block_bytes.
struct CopyBlockParams {
  char* base = nullptr;
  size_t block_bytes = 0;
  int32_t from = 0, to = 0;
};
Status copy_block(const CopyBlockParams& params, device::Stream stream);

}  // namespace tern::ops
