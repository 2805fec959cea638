// What other threads leave for the engine thread, and the figures it leaves for them: all under one mutex.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <future>
#include <mutex>
#include <vector>

#include "base/error.h"
#include "engine/control.h"
#include "engine/request.h"

namespace tern::engine {

class Inbox {
 public:
  // `capacity`: requests that may wait or run. `stats`: the figures until the first publish().
  Inbox(size_t capacity, const EngineStats& stats) : capacity_(capacity), stats_(stats) {}

  // Any thread.
  Status submit(Request request);
  void abort(RequestId id);
  std::future<Status> order(ControlOrder order);
  void shutdown(bool now);
  void step_done();  // the rank
  void wake();       // something has changed that the engine thread looks at
  EngineStats stats() const;
  bool healthy() const;

  // The engine thread.
  struct Order {
    ControlOrder order;
    size_t behind = 0;  // requests that came before it, of those taken with it
    std::promise<Status> done;
  };
  struct Commands {
    std::vector<Request> requests;
    std::vector<Order> orders;
    std::vector<RequestId> aborts;
    uint64_t steps_done = 0;  // by the rank, since the start
    bool stopping = false, ending = false;
  };
  // Swaps lists with `taken`, whose own are empty.
  void take(Commands& taken);
  // Waits until something has come since take(), for `ns` nanoseconds at most; whether it has.
  bool wait_for(int64_t ns);
  void wait();
  // `open`: requests that have left the inbox and not ended.
  void publish(const EngineStats& stats, size_t open, bool healthy);
  // The engine has ended: orders are refused from here on.
  void close();

 private:
  bool changed() const { return events_ != seen_events_; }

  const size_t capacity_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<Request> requests_;
  int64_t prompt_tokens_ = 0;  // of requests_
  std::vector<RequestId> aborts_;
  std::vector<Order> orders_;
  size_t open_ = 0;  // as of the engine thread's last turn, and what it has taken since
  bool stopping_ = false, ending_ = false, healthy_ = true, closed_ = false;
  uint64_t events_ = 0, seen_events_ = 0;  // grows with everything the engine thread should look at
  uint64_t steps_done_ = 0;
  EngineStats stats_;
};

}  // namespace tern::engine
