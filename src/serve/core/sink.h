// Who takes what the engine says about some of its requests: an I/O thread, a caller in this process, another
// transport.
#pragma once

#include <vector>

#include "engine/request.h"

namespace tern::serve {

// Called by the dispatcher's thread alone.
class Sink {
 public:
  virtual ~Sink() = default;
  // Takes news of its requests, in order. Never waits: false when it is full, `news` is then left as it was and offered
  // again. Others are not held up meanwhile.
  virtual bool take(std::vector<engine::Delta>& news) = 0;
  // The engine has ended: no more news come, open requests get none.
  virtual void engine_gone() = 0;
};

}  // namespace tern::serve
