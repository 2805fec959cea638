// Threads of media preparation. Tasks stand in queues, one per request, and queues take turns: a request of a hundred
// pictures does not hold up one with a single picture.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/task.h"

namespace tern::content {

class FairPool {
 public:
  // background: the threads yield to others (nice 10). most_per_group: threads that one group of queues may have at a
  // time, so that tasks which only wait leave some to others; 0: all.
  FairPool(const std::string& name, int threads, bool background, int most_per_group = 0);
  ~FairPool();  // runs what is queued, then joins
  FairPool(const FairPool&) = delete;
  FairPool& operator=(const FairPool&) = delete;

  // Tasks of a queue begin in their order. Tasks may submit others, until the destructor has returned.
  void submit(uint64_t queue, Task task) { submit(queue, queue, std::move(task)); }
  // group: that of the queue, which stays the same while it has tasks.
  void submit(uint64_t queue, uint64_t group, Task task);
  // work(0) to work(count - 1), each once, by the caller and by threads of the pool that have nothing to do; returns
  // when all have ended. For tasks of the pool: it never waits for work that has not begun.
  void spread(uint64_t queue, int count, const std::function<void(int)>& work);
  int threads() const { return static_cast<int>(threads_.size()); }
  int idle();  // threads that neither run a task nor will find one

 private:
  void run(const std::string& name, bool background);
  bool take(Task* task, uint64_t* group);
  bool may_run(uint64_t queue) const;

  struct Queue {
    uint64_t group = 0;
    std::deque<Task> tasks;
  };

  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  int running_ = 0;
  const int most_per_group_;
  std::unordered_map<uint64_t, int> running_of_;  // groups; none is 0; empty without a limit
  size_t queued_ = 0;
  std::unordered_map<uint64_t, Queue> queues_;  // none is empty
  std::deque<uint64_t> turns_;                  // each queue once
  std::vector<std::thread> threads_;
};

// Work that comes up while a task of the pool runs. Threads of the pool that have nothing to do take part in it. Used
// by the task's thread; offer() by anybody who works for it, too.
class SharedWork {
 public:
  SharedWork(FairPool& pool, uint64_t queue, std::function<void(int)> work);
  ~SharedWork();  // finish()
  SharedWork(const SharedWork&) = delete;
  SharedWork& operator=(const SharedWork&) = delete;

  // work(number) may begin. Numbers begin in the order of the offers.
  void offer(int number);
  // Begins what is offered until no more than `waiting` of it waits.
  void help(size_t waiting = 0);
  // Helps; returns when all that was offered has ended. It never waits for work that has not begun.
  void finish();

 private:
  struct State;
  FairPool& pool_;
  const uint64_t queue_;
  const std::shared_ptr<State> state_;
};

}  // namespace tern::content
