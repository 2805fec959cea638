#include "serve/net/poller.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include "base/check.h"

namespace tern::serve::net {

Poller::Poller() : epoll_(epoll_create1(EPOLL_CLOEXEC)), event_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  TERN_CHECK(epoll_ && event_);
  TERN_CHECK(add(event_.get(), EPOLLIN, 0));
}

bool Poller::add(int fd, uint32_t events, uint64_t key) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = key;
  return epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0;
}

void Poller::change(int fd, uint32_t events, uint64_t key) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = key;
  epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event);
}

void Poller::remove(int fd) { epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr); }

std::span<const epoll_event> Poller::wait(int timeout_ms) {
  const int n = epoll_wait(epoll_.get(), events_, kMaxEvents, timeout_ms);
  size_t kept = 0;
  for (int i = 0; i < n; ++i) {
    if (events_[i].data.u64 == 0) {
      uint64_t count = 0;
      [[maybe_unused]] const auto got = ::read(event_.get(), &count, sizeof count);
      // Cleared after the read and before the caller looks into its mailbox: a wake() from now on writes again.
      woken_.store(false, std::memory_order_seq_cst);
    } else {
      events_[kept++] = events_[i];
    }
  }
  return {events_, kept};
}

void Poller::wake() {
  if (woken_.exchange(true, std::memory_order_seq_cst)) return;
  const uint64_t one = 1;
  [[maybe_unused]] const auto put = ::write(event_.get(), &one, sizeof one);
}

}  // namespace tern::serve::net
