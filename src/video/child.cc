#include "video/child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "video/protocol.h"

namespace tern::video {
namespace {

class Fd {
 public:
  explicit Fd(int fd = -1) : fd_(fd) {}
  ~Fd() {
    if (fd_ >= 0) close(fd_);
  }
  Fd(Fd&& other) noexcept : fd_(other.release()) {}
  Fd& operator=(Fd&&) = delete;
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

Error no_resources() {
  return make_error(ErrorCode::kResourceExhausted, "No memory or file descriptors for decoding a video.");
}
Error too_slow() { return make_error(ErrorCode::kTooLarge, "The video took too long to decode."); }
Error gone() { return make_error(ErrorCode::kCorrupt, "The video could not be decoded."); }

Expected<Fd> sealed_copy(std::span<const std::byte> file) {
  Fd memory(memfd_create("video", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (memory.get() < 0) return no_resources();
  for (size_t at = 0; at < file.size();) {
    const ssize_t n = write(memory.get(), file.data() + at, file.size() - at);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return no_resources();
    at += static_cast<size_t>(n);
  }
  if (fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) != 0)
    return no_resources();
  return memory;
}

class SpawnSettings {
 public:
  SpawnSettings() {
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
  }
  ~SpawnSettings() {
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
  }
  SpawnSettings(const SpawnSettings&) = delete;
  SpawnSettings& operator=(const SpawnSettings&) = delete;

  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
};

// A group of its own: Ctrl-C at the server's terminal ends the server in order, not its decoders under it.
bool prepare(SpawnSettings& settings, int memory, int socket) {
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  auto* actions = &settings.actions;
  auto* attributes = &settings.attributes;
  return posix_spawn_file_actions_adddup2(actions, memory, kFileFd) == 0 &&
         posix_spawn_file_actions_addopen(actions, 1, "/dev/null", O_WRONLY, 0) == 0 &&
         posix_spawn_file_actions_addopen(actions, 2, "/dev/null", O_WRONLY, 0) == 0 &&
         posix_spawn_file_actions_adddup2(actions, socket, kSocketFd) == 0 &&
         posix_spawn_file_actions_addclosefrom_np(actions, kSocketFd + 1) == 0 &&
         posix_spawnattr_setsigmask(attributes, &none) == 0 && posix_spawnattr_setsigdefault(attributes, &all) == 0 &&
         posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP) ==
             0;
}

// Above the descriptors that the child gives new meanings: dup2 onto itself would keep close-on-exec.
Expected<Fd> lifted(Fd fd) {
  if (fd.get() > kSocketFd) return fd;
  Fd high(fcntl(fd.get(), F_DUPFD_CLOEXEC, kSocketFd + 1));
  if (high.get() < 0) return no_resources();
  return high;
}

}  // namespace

Expected<Child> Child::start(const std::string& program, std::span<const std::byte> file, Clock::time_point deadline) {
  TERN_ASSIGN_OR_RETURN(Fd copy, sealed_copy(file));
  TERN_ASSIGN_OR_RETURN(const Fd memory, lifted(std::move(copy)));
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) return no_resources();
  Fd ours(pair[0]);
  TERN_ASSIGN_OR_RETURN(const Fd theirs, lifted(Fd(pair[1])));
  SpawnSettings settings;
  if (!prepare(settings, memory.get(), theirs.get())) return no_resources();
  std::string name = program;
  char* const arguments[] = {name.data(), nullptr};
  char* const environment[] = {nullptr};
  pid_t pid = -1;
  if (posix_spawn(&pid, program.c_str(), &settings.actions, &settings.attributes, arguments, environment) != 0) {
    return make_error(ErrorCode::kUnavailable, "The video decoder cannot be started.");
  }
  return Child(pid, ours.release(), deadline);
}

Child::Child(Child&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), socket_(std::exchange(other.socket_, -1)), deadline_(other.deadline_) {}

Child::~Child() {
  if (socket_ >= 0) close(socket_);
  if (pid_ < 0) return;
  kill(pid_, SIGKILL);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) continue;
}

Status Child::wait_for(short events) {
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline_ - Clock::now()).count();
    if (left <= 0) return too_slow();
    pollfd entry{socket_, events, 0};
    const int ready = poll(&entry, 1, static_cast<int>(std::min<int64_t>(left, 1 << 30)));
    if (ready > 0) return {};
    if (ready < 0 && errno != EINTR) return no_resources();
  }
}

// Why the other side is silent: its time was up, or anything else.
Error Child::ended() const {
  for (int i = 0; i < 20; ++i) {  // it may be on its way to death still
    siginfo_t how{};
    if (waitid(P_PID, static_cast<id_t>(pid_), &how, WEXITED | WNOHANG | WNOWAIT) != 0) break;
    if (how.si_pid != 0) return how.si_code != CLD_EXITED && how.si_status == SIGXCPU ? too_slow() : gone();
    usleep(5000);
  }
  return gone();
}

Status Child::send(const void* from, size_t size) {
  const auto* at = static_cast<const char*>(from);
  while (size > 0) {
    TERN_RETURN_IF_ERROR(wait_for(POLLOUT));
    const ssize_t n = ::send(socket_, at, size, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n <= 0) return ended();
    at += n;
    size -= static_cast<size_t>(n);
  }
  return {};
}

Status Child::receive(void* to, size_t size) {
  auto* at = static_cast<char*>(to);
  while (size > 0) {
    TERN_RETURN_IF_ERROR(wait_for(POLLIN));
    const ssize_t n = recv(socket_, at, size, MSG_DONTWAIT);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n <= 0) return ended();
    at += n;
    size -= static_cast<size_t>(n);
  }
  return {};
}

}  // namespace tern::video
