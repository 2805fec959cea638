// From the engine's one outbox to the sinks of its requests: a request's id names its sink.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/client.h"
#include "serve/core/sink.h"

namespace tern::serve {

class Dispatcher {
 public:
  static constexpr int kMaxSinks = 256;  // the low byte of an id is its sink's number
  static constexpr size_t kMaxWaiting = 64u
                                        << 10;  // deltas that full sinks did not take; beyond them nothing is polled

  explicit Dispatcher(engine::EngineClient& engine) : engine_(engine) {}
  ~Dispatcher() { stop(); }
  Dispatcher(const Dispatcher&) = delete;
  Dispatcher& operator=(const Dispatcher&) = delete;

  // From here on only this calls EngineClient::poll. `on_gone`: the engine has ended; before the sinks hear of it.
  void start(std::function<void()> on_gone);
  void stop();

  // The sink's number; below 0: there are too many. Any thread, also while the dispatcher runs.
  int add(Sink& sink);
  // Nothing reaches the sink once this returns; what waits for it is dropped. Its owner aborts its open requests. Not
  // from inside a sink.
  void remove(int sink);
  // An id for a request of the sink, never the same twice. Any thread.
  engine::RequestId next_id(int sink) {
    return (serial_.fetch_add(1, std::memory_order_relaxed) << 8) | static_cast<engine::RequestId>(sink);
  }

 private:
  struct Entry {
    Sink* sink = nullptr;
    std::vector<engine::Delta> waiting;
  };
  void run(const std::function<void()>& on_gone);
  void sort(std::vector<engine::Delta>& news);
  size_t offer();  // deltas that still wait
  void tell_gone();

  engine::EngineClient& engine_;
  std::atomic<uint64_t> serial_{1};
  std::atomic<bool> stop_{false};
  std::mutex mutex_;  // of sinks_; held while a sink is called
  std::array<Entry, kMaxSinks> sinks_;
  int used_ = 0;  // entries below may hold sinks
  std::thread thread_;
};

}  // namespace tern::serve
