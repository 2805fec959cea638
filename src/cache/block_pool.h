// Numbered KV blocks, reference counted. Block 0 is the null block: padding rows write there, nobody owns it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tern::cache {

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

 private:
  std::vector<int32_t> refs_;
  std::vector<int32_t> free_;
};

}  // namespace tern::cache
