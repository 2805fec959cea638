#include "cache/block_pool.h"

#include "base/check.h"

namespace tern::cache {

BlockPool::BlockPool(int blocks) {
  TERN_CHECK_MSG(blocks >= 1, "a pool has at least the null block");
  const auto count = static_cast<size_t>(blocks);
  refs_.assign(count, 0);
  watched_.assign(count, 0);
  refs_[0] = 1;
  free_.reserve(count);
  for (int32_t block = blocks - 1; block >= 1; --block) free_.push_back(block);
}

void BlockPool::check_owned(int32_t block) const {
  TERN_CHECK_MSG(block > 0 && block < size() && refs(block) > 0, "block " + std::to_string(block));
}

int32_t BlockPool::take() {
  if (free_.empty()) return -1;
  const int32_t block = free_.back();
  free_.pop_back();
  refs_[static_cast<size_t>(block)] = 1;
  return block;
}

void BlockPool::retain(int32_t block) {
  check_owned(block);
  const auto i = static_cast<size_t>(block);
  if (++refs_[i] == 2 && watched_[i] != 0) watcher_->holders_changed(block, true);
}

bool BlockPool::release(int32_t block) {
  check_owned(block);
  const auto i = static_cast<size_t>(block);
  if (--refs_[i] == 0) {
    TERN_CHECK_MSG(watched_[i] == 0, "a watched block lost its last holder");
    free_.push_back(block);
    return true;
  }
  if (refs_[i] == 1 && watched_[i] != 0) watcher_->holders_changed(block, false);
  return false;
}

void BlockPool::watch(int32_t block, bool on) {
  check_owned(block);
  watched_[static_cast<size_t>(block)] = on ? 1 : 0;
}

}  // namespace tern::cache
