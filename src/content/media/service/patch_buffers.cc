#include "content/media/service/patch_buffers.h"

#include <utility>

namespace tern::content {

struct PatchBuffers::State {
  size_t keep_bytes;
  OnRelease on_release;
  std::mutex mutex;
  size_t kept_bytes = 0;
  std::vector<Buffer> kept;

  // The smallest that is large enough and not more than twice as large.
  Buffer find(size_t bytes) {
    const std::lock_guard lock(mutex);
    size_t best = kept.size();
    for (size_t i = 0; i < kept.size(); i++) {
      if (kept[i].size() < bytes || kept[i].size() > 2 * bytes) continue;
      if (best == kept.size() || kept[i].size() < kept[best].size()) best = i;
    }
    if (best == kept.size()) return {};
    Buffer found = std::move(kept[best]);
    kept_bytes -= found.capacity();
    kept[best] = std::move(kept.back());
    kept.pop_back();
    return found;
  }

  // False when there is no room for it.
  bool put_back(Buffer* buffer) {
    const std::lock_guard lock(mutex);
    if (kept_bytes + buffer->capacity() > keep_bytes) return false;
    kept_bytes += buffer->capacity();
    kept.push_back(std::move(*buffer));
    return true;
  }
};

PatchBuffers::PatchBuffers(size_t keep_bytes, OnRelease on_release) : state_(std::make_shared<State>()) {
  state_->keep_bytes = keep_bytes;
  state_->on_release = std::move(on_release);
}

std::shared_ptr<PatchBuffers::Buffer> PatchBuffers::take(size_t bytes) {
  Buffer memory = state_->find(bytes);
  memory.resize(bytes);
  auto owned = std::make_unique<Buffer>(std::move(memory));
  return {owned.release(), [state = state_, bytes](Buffer* buffer) {
            std::shared_ptr<Buffer> rest(buffer);
            if (state->put_back(buffer)) rest = nullptr;
            state->on_release(bytes, std::move(rest));
          }};
}

}  // namespace tern::content
