#include "app/start/signals.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "base/log.h"
#include "base/thread_pool.h"

namespace tern::app {
namespace {

constexpr int kStop = SIGUSR2;  // from the destructor

sigset_t waited() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : {SIGTERM, SIGINT, SIGHUP, kStop}) sigaddset(&set, number);
  return set;
}

}  // namespace

void hold_hangup() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGHUP);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

Signals::Signals() {
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);
  const sigset_t set = waited();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  thread_ = std::thread([this] { run(); });
}

Signals::~Signals() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    action_ = nullptr;
    hangup_ = nullptr;
  }
  pthread_kill(thread_.native_handle(), kStop);
  thread_.join();
}

void Signals::on_signal(std::function<void(int)> action) {
  std::lock_guard lock(mutex_);
  action_ = std::move(action);
}

void Signals::on_hangup(std::function<void()> action) {
  std::lock_guard lock(mutex_);
  hangup_ = std::move(action);
}

void Signals::run() {
  set_thread_name("signals");
  const sigset_t set = waited();
  while (true) {
    int number = 0;
    if (sigwait(&set, &number) != 0) continue;
    std::lock_guard lock(mutex_);
    if (stopping_) return;
    if (number == kStop) continue;
    if (number == SIGHUP) {
      if (hangup_) hangup_();
      continue;
    }
    if (!action_) _exit(128 + number);
    action_(++count_);
  }
}

StdinWatch::StdinWatch(bool on) {
  if (!on) return;
  stop_ = ::eventfd(0, EFD_CLOEXEC);
  thread_ = std::thread([this] { run(); });
}

StdinWatch::~StdinWatch() {
  if (!thread_.joinable()) return;
  [[maybe_unused]] const int written = ::eventfd_write(stop_, 1);
  thread_.join();
  ::close(stop_);
}

void StdinWatch::run() const {
  set_thread_name("stdin-watch");
  while (true) {
    std::array<pollfd, 2> both = {pollfd{STDIN_FILENO, POLLIN, 0}, pollfd{stop_, POLLIN, 0}};
    if (::poll(both.data(), both.size(), -1) < 0 && errno != EINTR) return;
    if (both[1].revents != 0) return;
    if (both[0].revents == 0) continue;
    std::array<char, 4096> dropped;
    const ssize_t read = ::read(STDIN_FILENO, dropped.data(), dropped.size());
    if (read > 0 || (read < 0 && (errno == EINTR || errno == EAGAIN))) continue;
    TERN_INFO("standard input has ended: the server ends with the process that started it");
    // One of each kind: two pending signals of one kind would be one. The second ends the draining.
    ::kill(::getpid(), SIGTERM);
    ::kill(::getpid(), SIGINT);
    return;
  }
}

}  // namespace tern::app
