// Memory of patches: counted while anybody holds it, and used again where possible, because fresh pages are slow.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "base/memory/raw_bytes.h"

namespace tern::content {

// May go before its buffers do.
class PatchBuffers {
 public:
  using Buffer = RawBytes;
  // At most keep_bytes of unused memory are kept. on_release: called with a buffer's size when its last holder drops
  // it, from that holder's thread, and with the memory where it is not kept (giving it back takes time).
  using OnRelease = std::function<void(size_t bytes, std::shared_ptr<Buffer> rest)>;
  PatchBuffers(size_t keep_bytes, OnRelease on_release);

  // `bytes` bytes of any content. The caller has accounted for them.
  std::shared_ptr<Buffer> take(size_t bytes);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace tern::content
