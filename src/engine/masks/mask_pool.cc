#include "engine/masks/mask_pool.h"

#include <utility>

#include "base/thread_pool.h"

namespace tern::engine {

MaskPool::MaskPool(int threads) : ring_(256) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { run(); });
}

MaskPool::~MaskPool() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  given_.notify_all();
  for (std::thread& t : threads_) t.join();
}

void MaskPool::push(Task task) {
  if (count_ == ring_.size()) {
    std::vector<Task> larger(2 * ring_.size());
    for (size_t i = 0; i < count_; ++i) larger[i] = std::move(ring_[(head_ + i) % ring_.size()]);
    ring_.swap(larger);
    head_ = 0;
  }
  ring_[(head_ + count_++) % ring_.size()] = std::move(task);
}

void MaskPool::give(std::vector<std::shared_ptr<Guide>>& guides) {
  if (guides.empty()) return;
  {
    std::lock_guard lock(mutex_);
    for (std::shared_ptr<Guide>& guide : guides) push({std::move(guide), false});
  }
  if (guides.size() == 1) {
    given_.notify_one();
  } else {
    given_.notify_all();
  }
  guides.clear();
}

void MaskPool::retire(std::shared_ptr<Guide> guide) {
  {
    std::lock_guard lock(mutex_);
    push({std::move(guide), true});
  }
  given_.notify_one();
}

void MaskPool::run() {
  set_thread_name("masks");
  std::unique_lock lock(mutex_);
  for (;;) {
    given_.wait(lock, [this] { return stopping_ || count_ > 0; });
    if (stopping_) return;
    Task task = std::move(ring_[head_]);
    head_ = (head_ + 1) % ring_.size();
    --count_;
    lock.unlock();
    if (!task.last) task.guide->work();
    task.guide.reset();  // the last one may let go of a large matcher
    lock.lock();
  }
}

}  // namespace tern::engine
