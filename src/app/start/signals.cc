#include "app/start/signals.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

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

}  // namespace tern::app
