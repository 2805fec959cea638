// Threads that compute masks, so that neither the engine nor the rank waits for a grammar.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/masks/guide.h"

namespace tern::engine {

class MaskPool {
 public:
  explicit MaskPool(int threads);
  ~MaskPool();  // what was given is dropped, what runs is finished

  // Takes all of `guides` and leaves the list empty; in their order.
  void give(std::vector<std::shared_ptr<Guide>>& guides);
  // The guide's request has ended: its memory goes back on a thread of the pool, once no thread works on it.
  void retire(std::shared_ptr<Guide> guide);

 private:
  struct Task {
    std::shared_ptr<Guide> guide;
    bool last = false;  // to be let go only
  };
  void run();
  void push(Task task);

  std::mutex mutex_;
  std::condition_variable given_;
  std::vector<Task> ring_;  // its size is a power of two and grows with demand
  size_t head_ = 0, count_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace tern::engine
