#include "app/start/server_group.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <mutex>

#include "app/report.h"
#include "app/start/background.h"
#include "app/start/signals.h"

namespace tern::app {
namespace {

std::string ending_of(int status) {
  if (WIFSIGNALED(status)) return fmt::format("was ended by signal {}", WTERMSIG(status));
  return fmt::format("ended with status {}", WEXITSTATUS(status));
}

class Group {
 public:
  explicit Group(const std::vector<ServerOfGroup>& servers) : servers_(servers), pids_(servers.size(), 0) {}
  ~Group() {
    for (const int end : pipe_) {
      if (end >= 0) ::close(end);
    }
  }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  Status start() {
    // Nothing is ever written: the children's standard input ends with this process.
    if (::pipe2(pipe_.data(), O_CLOEXEC) != 0) {
      return make_error(ErrorCode::kIo, fmt::format("pipe: {}", std::strerror(errno)));
    }
    const std::lock_guard lock(mutex_);
    for (size_t i = 0; i < servers_.size() && !asked_; ++i) {
      const ServerOfGroup& s = servers_[i];
      TERN_ASSIGN_OR_RETURN(pids_[i],
                            spawn_program({.arguments = s.arguments, .environment = s.environment}, pipe_[0]));
    }
    return {};
  }

  // Of the thread of signals.
  void stop(int count) {
    const std::lock_guard lock(mutex_);
    asked_ = true;
    send(count == 1 ? SIGTERM : count == 2 ? SIGINT : SIGKILL);
  }
  void hang_up() {
    const std::lock_guard lock(mutex_);
    send(SIGHUP);
  }

  // Until all have ended; the exit status.
  int wait() {
    int result = 0;
    while (running()) {
      siginfo_t ended{};
      // It stays a zombie until its number is no longer used here: no other process can have it.
      if (::waitid(P_ALL, 0, &ended, WEXITED | WNOWAIT) != 0) {
        if (errno == EINTR) continue;
        break;
      }
      const std::lock_guard lock(mutex_);
      int status = 0;
      ::waitpid(ended.si_pid, &status, 0);
      const auto at = std::find(pids_.begin(), pids_.end(), ended.si_pid);
      if (at == pids_.end()) continue;
      *at = 0;
      const bool well = WIFEXITED(status) && WEXITSTATUS(status) == 0;
      if (!well || !asked_)
        result = result != 0 ? result : well || WIFSIGNALED(status) ? kFailureExit : WEXITSTATUS(status);
      if (asked_) continue;
      asked_ = true;
      fmt::print(stderr, "tern: {} {}: the others are stopped\n",
                 servers_[static_cast<size_t>(at - pids_.begin())].name, ending_of(status));
      std::fflush(stderr);
      send(SIGTERM);
    }
    return result;
  }

 private:
  bool running() {
    const std::lock_guard lock(mutex_);
    return std::any_of(pids_.begin(), pids_.end(), [](pid_t pid) { return pid > 0; });
  }
  void send(int signal) {
    for (const pid_t pid : pids_) {
      if (pid > 0) ::kill(pid, signal);
    }
  }

  const std::vector<ServerOfGroup>& servers_;
  std::mutex mutex_;
  std::vector<pid_t> pids_;  // 0: not running
  bool asked_ = false;       // they have been told to end
  std::array<int, 2> pipe_ = {-1, -1};
};

}  // namespace

Expected<int> run_servers(const std::vector<ServerOfGroup>& servers) {
  Signals signals;
  Group group(servers);
  signals.on_signal([&group](int count) { group.stop(count); });
  signals.on_hangup([&group] { group.hang_up(); });
  const Status started = group.start();
  if (!started.ok()) group.stop(1);
  const int status = group.wait();
  signals.on_signal([](int) {});
  signals.on_hangup([] {});
  if (!started.ok()) return started.error();
  return status;
}

}  // namespace tern::app
