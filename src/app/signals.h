// SIGTERM and SIGINT as calls in one thread. SIGPIPE and SIGXFSZ are ignored: a closed connection and a full disk are
// errors of one write.
#pragma once

#include <functional>
#include <mutex>
#include <thread>

namespace tern::app {

class Signals {
 public:
  // Blocks the signals in the calling thread and in all threads it starts later. Until on_signal() says more, a signal
  // ends the process at once (128 + its number).
  Signals();
  ~Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;
  // `action` gets 1 for the first signal, 2 for the second, ... It runs in the signal thread and must not wait.
  void on_signal(std::function<void(int)> action);

 private:
  void run();
  std::mutex mutex_;
  std::function<void(int)> action_;
  int count_ = 0;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace tern::app
