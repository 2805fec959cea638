#include "content/media/fair_pool.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/thread_pool.h"

namespace tern::content {
FairPool::FairPool(const std::string& name, int threads, bool background) {
  TERN_CHECK(threads > 0);
  threads_.reserve(threads);
  for (int i = 0; i < threads; i++) {
    threads_.emplace_back([this, name = fmt::format("{}-{}", name, i), background] { run(name, background); });
  }
}

FairPool::~FairPool() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void FairPool::submit(uint64_t lane, std::function<void()> task) {
  // Woken under the lock: once the task can be taken, it may end the pool's owner before this call returns.
  const std::lock_guard lock(mutex_);
  auto& queue = lanes_[lane];
  if (queue.empty()) turns_.push_back(lane);
  queue.push_back(std::move(task));
  ++queued_;
  wake_.notify_one();
}

int FairPool::idle() {
  const std::lock_guard lock(mutex_);
  return std::max(0, threads() - running_ - static_cast<int>(queued_));
}

void FairPool::spread(uint64_t lane, int count, const std::function<void(int)>& work) {
  SharedWork shared(*this, lane, work);
  for (int i = 0; i < count; ++i) shared.offer(i);
}

bool FairPool::take(std::function<void()>* task) {
  std::unique_lock lock(mutex_);
  // A task that still runs may submit more.
  wake_.wait(lock, [&] { return !turns_.empty() || (stopping_ && running_ == 0); });
  if (turns_.empty()) return false;
  const uint64_t lane = turns_.front();
  turns_.pop_front();
  auto found = lanes_.find(lane);
  *task = std::move(found->second.front());
  found->second.pop_front();
  --queued_;
  if (found->second.empty()) {
    lanes_.erase(found);
  } else {
    turns_.push_back(lane);
  }
  running_++;
  return true;
}

void FairPool::run(const std::string& name, bool background) {
  set_thread_name(name);
  if (background) setpriority(PRIO_PROCESS, 0, 10);  // of this thread alone, on Linux
  std::function<void()> task;
  while (take(&task)) {
    task();
    task = nullptr;
    bool last;
    {
      const std::lock_guard lock(mutex_);
      last = --running_ == 0 && stopping_;
    }
    if (last) wake_.notify_all();
  }
}

// A helper that comes when nothing is left touches nothing but this.
struct SharedWork::State {
  explicit State(std::function<void(int)> of_each) : work(std::move(of_each)) {}
  void help(size_t most) {
    std::unique_lock lock(mutex);
    while (waiting.size() > most) {
      const int number = waiting.front();
      waiting.pop_front();
      ++running;
      lock.unlock();
      work(number);
      lock.lock();
      if (--running == 0 && waiting.empty()) done.notify_all();
    }
  }

  const std::function<void(int)> work;
  std::mutex mutex;
  std::condition_variable done;
  std::deque<int> waiting;
  int running = 0;
};

SharedWork::SharedWork(FairPool& pool, uint64_t lane, std::function<void(int)> work)
    : pool_(pool), lane_(lane), state_(std::make_shared<State>(std::move(work))) {}

SharedWork::~SharedWork() { finish(); }

void SharedWork::offer(int number) {
  {
    const std::lock_guard lock(state_->mutex);
    state_->waiting.push_back(number);
  }
  if (pool_.idle() > 0) pool_.submit(lane_, [state = state_] { state->help(0); });
}

void SharedWork::help(size_t waiting) { state_->help(waiting); }

void SharedWork::finish() {
  state_->help(0);
  std::unique_lock lock(state_->mutex);
  state_->done.wait(lock, [&] { return state_->waiting.empty() && state_->running == 0; });
}

}  // namespace tern::content
