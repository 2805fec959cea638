// Ranges of addresses that give their memory back.
#pragma once

#include "device/stream.h"

namespace tern::device {

class ShrinkableRange : public AddressRange {
 public:
  // Gives memory back behind the first `bytes`, as far as whole pages go; the
  // addresses stay taken. Nothing may be at work there.
  virtual Status shrink(size_t bytes) = 0;
};

// The same of any range; kUnsupported where it cannot. Ranges of
// Device::reserve() can.
Status shrink(AddressRange& range, size_t bytes);

}  // namespace tern::device
