// Readiness of sockets: epoll, and a way to wake the thread that waits.
#pragma once

#include <sys/epoll.h>

#include <atomic>
#include <cstdint>
#include <span>

#include "serve/net/fd.h"

namespace tern::serve::net {

class Poller {
 public:
  Poller();

  // Events are level triggered; `key` comes back with them. 0 is the waker's own key.
  bool add(int fd, uint32_t events, uint64_t key);
  void change(int fd, uint32_t events, uint64_t key);
  void remove(int fd);

  // Waits for events; the span is valid until the next call. The waker's event is consumed here and not reported.
  std::span<const epoll_event> wait(int timeout_ms);
  // Ends a wait() from another thread; cheap when the thread is already on its way.
  void wake();

 private:
  static constexpr int kMaxEvents = 256;
  Fd epoll_, event_;
  std::atomic<bool> woken_{false};
  epoll_event events_[kMaxEvents];
};

}  // namespace tern::serve::net
