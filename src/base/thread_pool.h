// A pool of threads for independent host tasks (templates, tokenization, JSON of large bodies). Compute kernels use
// device/compute_pool.h instead.
#pragma once

#include <string>
#include <thread>
#include <vector>

#include "base/bounded_queue.h"
#include "base/task.h"

namespace tern {

class ThreadPool {
 public:
  // Threads are named `name`-0, `name`-1, ... for debuggers and profilers.
  ThreadPool(std::string name, size_t threads, size_t queue_capacity);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // False when the queue is full or the pool is stopping, and the task is left as it was: the caller decides what that
  // means (usually 429 or 503).
  bool try_submit(Task& task) { return tasks_.try_push(task); }
  bool try_submit(Task&& task) { return tasks_.try_push(task); }
  // Finishes what is queued, then joins. Called by the destructor too.
  void stop();
  size_t queued() const { return tasks_.size(); }

 private:
  BoundedQueue<Task> tasks_;
  std::vector<std::thread> threads_;
};

void set_thread_name(const std::string& name);

}  // namespace tern
