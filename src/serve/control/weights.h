// The weights of what serves, as control orders see them: they go, and are read again at the same addresses.
#pragma once

#include <cstdint>
#include <string>

#include "base/error.h"

namespace tern::serve::control {

struct WeightsFrom {
  // The folder they were read from last; the model's own; `path`, which is checked against what is allowed.
  enum class Folder : uint8_t { kLast, kOwn, kNamed } folder = Folder::kLast;
  std::string path;
  bool verify = false;  // against the folder's SHA256SUMS
};

// Called by one thread at a time, while no step runs.
class Weights {
 public:
  virtual ~Weights() = default;
  virtual Status give_back() = 0;
  // Checks everything before the first byte is written. An error leaves them as they were, unless whole() says
  // otherwise.
  virtual Status read(const WeightsFrom& from) = 0;
  virtual bool whole() const = 0;  // all of them are in memory
};

}  // namespace tern::serve::control
