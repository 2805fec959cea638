// Numbered KV blocks, reference counted. Block 0 is the null block: padding rows write there, it has no owner.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tern::cache {

// Told when a watched block gains its second holder or falls back to its first one.
class BlockWatcher {
 public:
  virtual void holders_changed(int32_t block, bool shared) = 0;

 protected:
  ~BlockWatcher() = default;
};

class BlockPool {
 public:
  // `blocks` includes the null block.
  explicit BlockPool(int blocks);

  int size() const { return static_cast<int>(refs_.size()); }
  int free_count() const { return static_cast<int>(free_.size()); }
  // A free block with one reference, or -1.
  int32_t take();
  void retain(int32_t block);
  // Returns true when this was the last reference: the block is free again.
  bool release(int32_t block);
  int refs(int32_t block) const { return refs_[static_cast<size_t>(block)]; }

  // One watcher (the prefix index) hears of the blocks it asks about; nullptr stops watching.
  void set_watcher(BlockWatcher* watcher) { watcher_ = watcher; }
  void watch(int32_t block, bool on);

 private:
  void check_owned(int32_t block) const;

  std::vector<int32_t> refs_;
  std::vector<int32_t> free_;  // last in, first out: recently used blocks are still warm
  std::vector<uint8_t> watched_;
  BlockWatcher* watcher_ = nullptr;
};

}  // namespace tern::cache
