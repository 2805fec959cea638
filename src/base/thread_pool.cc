#include "base/thread_pool.h"

#include <pthread.h>

namespace tern {

void set_thread_name(const std::string& name) { pthread_setname_np(pthread_self(), name.substr(0, 15).c_str()); }

ThreadPool::ThreadPool(std::string name, size_t threads, size_t queue_capacity) : tasks_(queue_capacity) {
  threads_.reserve(threads);
  for (size_t i = 0; i < threads; ++i) {
    threads_.emplace_back([this, thread_name = name + "-" + std::to_string(i)] {
      set_thread_name(thread_name);
      while (auto task = tasks_.pop()) (*task)();
    });
  }
}

ThreadPool::~ThreadPool() { stop(); }

void ThreadPool::stop() {
  tasks_.close();
  for (auto& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

}  // namespace tern
