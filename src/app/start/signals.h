// SIGTERM, SIGINT and SIGHUP as calls in one thread. SIGPIPE and SIGXFSZ are ignored: a closed connection and a full
// disk are errors of one write.
#pragma once

#include <functional>
#include <mutex>
#include <thread>

namespace tern::app {

// For a server, before anything else: a SIGHUP waits until Signals takes it, instead of ending the process.
void hold_hangup();

class Signals {
 public:
  // Blocks the signals in the calling thread and in all threads it starts later. Until on_signal() says more, SIGTERM
  // and SIGINT end the process at once (128 + their number). SIGHUP never does.
  Signals();
  ~Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;
  // `action` gets 1 for the first signal, 2 for the second, ... It runs in the signal thread and must not wait.
  void on_signal(std::function<void(int)> action);
  // SIGHUP: the logs were moved, or the terminal is gone. Likewise must not wait.
  void on_hangup(std::function<void()> action);

 private:
  void run();
  std::mutex mutex_;
  std::function<void(int)> action_;
  std::function<void()> hangup_;
  int count_ = 0;
  bool stopping_ = false;
  std::thread thread_;
};

// Ends the process with the one that holds the other end of its standard input: also when that one was killed.
class StdinWatch {
 public:
  // `on`: false watches nothing. At the end of standard input the process gets SIGTERM and SIGINT: what is open is
  // aborted and not waited for. Bytes that come before are read and dropped.
  explicit StdinWatch(bool on);
  ~StdinWatch();
  StdinWatch(const StdinWatch&) = delete;
  StdinWatch& operator=(const StdinWatch&) = delete;

 private:
  void run() const;
  int stop_ = -1;  // an eventfd
  std::thread thread_;
};

}  // namespace tern::app
