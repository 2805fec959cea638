#include "content/media/service/fair_pool.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/thread_pool.h"

namespace tern::content {
FairPool::FairPool(const std::string& name, int threads, bool background, int most_per_group)
    : most_per_group_(most_per_group) {
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

void FairPool::submit(uint64_t queue, uint64_t group, Task task) {
  // Woken under the lock: once the task can be taken, it may end the pool's owner before this call returns.
  const std::lock_guard lock(mutex_);
  Queue& to = queues_[queue];
  if (to.tasks.empty()) turns_.push_back(queue);
  to.group = group;
  to.tasks.push_back(std::move(task));
  ++queued_;
  wake_.notify_one();
}

int FairPool::idle() {
  const std::lock_guard lock(mutex_);
  return std::max(0, threads() - running_ - static_cast<int>(queued_));
}

void FairPool::spread(uint64_t queue, int count, const std::function<void(int)>& work) {
  SharedWork shared(*this, queue, work);
  for (int i = 0; i < count; ++i) shared.offer(i);
}

bool FairPool::may_run(uint64_t queue) const {
  if (most_per_group_ == 0) return true;
  const auto of_group = running_of_.find(queues_.at(queue).group);
  return of_group == running_of_.end() || of_group->second < most_per_group_;
}

bool FairPool::take(Task* task, uint64_t* group) {
  std::unique_lock lock(mutex_);
  auto turn = turns_.end();
  // A task that still runs may submit more.
  wake_.wait(lock, [&] {
    turn = std::find_if(turns_.begin(), turns_.end(), [&](uint64_t queue) { return may_run(queue); });
    return turn != turns_.end() || (stopping_ && running_ == 0);
  });
  if (turn == turns_.end()) return false;
  const uint64_t queue = *turn;
  turns_.erase(turn);
  const auto found = queues_.find(queue);
  *task = std::move(found->second.tasks.front());
  *group = found->second.group;
  found->second.tasks.pop_front();
  --queued_;
  if (found->second.tasks.empty()) {
    queues_.erase(found);
  } else {
    turns_.push_back(queue);
  }
  running_++;
  if (most_per_group_ > 0) running_of_[*group]++;
  return true;
}

void FairPool::run(const std::string& name, bool background) {
  set_thread_name(name);
  if (background) setpriority(PRIO_PROCESS, 0, 10);  // of this thread alone, on Linux
  Task task;
  uint64_t group = 0;
  while (take(&task, &group)) {
    task();
    task = nullptr;
    bool others;  // may go on, or end
    {
      const std::lock_guard lock(mutex_);
      others = --running_ == 0 && stopping_;
      if (most_per_group_ > 0) {
        others = others || !turns_.empty();
        const auto of_group = running_of_.find(group);
        if (--of_group->second == 0) running_of_.erase(of_group);
      }
    }
    if (others) wake_.notify_all();
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

SharedWork::SharedWork(FairPool& pool, uint64_t queue, std::function<void(int)> work)
    : pool_(pool), queue_(queue), state_(std::make_shared<State>(std::move(work))) {}

SharedWork::~SharedWork() { finish(); }

void SharedWork::offer(int number) {
  {
    const std::lock_guard lock(state_->mutex);
    state_->waiting.push_back(number);
  }
  if (pool_.idle() > 0) pool_.submit(queue_, [state = state_] { state->help(0); });
}

void SharedWork::help(size_t waiting) { state_->help(waiting); }

void SharedWork::finish() {
  state_->help(0);
  std::unique_lock lock(state_->mutex);
  state_->done.wait(lock, [&] { return state_->waiting.empty() && state_->running == 0; });
}

}  // namespace tern::content
