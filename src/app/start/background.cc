#include "app/start/background.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include <fmt/format.h>

namespace tern::app {
namespace {

// Field 22 of /proc/PID/stat: ticks since the machine started. Names in field 2 may hold anything but end with the last
// parenthesis.
std::optional<uint64_t> start_time(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string text;
  std::getline(file, text);
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  size_t at = name_end + 2;  // field 3
  for (int field = 3; field < 22; ++field) {
    at = text.find(' ', at);
    if (at == std::string::npos) return std::nullopt;
    ++at;
  }
  return std::strtoull(text.c_str() + at, nullptr, 10);
}

Error failed(const std::string& what) {
  return make_error(ErrorCode::kIo, fmt::format("{}: {}", what, std::strerror(errno)));
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (std::string& text : texts) out.push_back(text.data());
  out.push_back(nullptr);
  return out;
}

Expected<std::string> own_program() {
  std::string path(4096, '\0');
  const ssize_t size = ::readlink("/proc/self/exe", path.data(), path.size());
  if (size <= 0) return failed("/proc/self/exe");
  path.resize(static_cast<size_t>(size));
  return path;
}

// A process to be; signals are as they are by default: a shell's background job ignores SIGINT, which stop_server
// sends.
struct Spawn {
  explicit Spawn(int flags) {
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&attributes);
    sigset_t none, asked;
    sigemptyset(&none);
    sigemptyset(&asked);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) sigaddset(&asked, signal);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &asked);
    posix_spawnattr_setflags(&attributes, static_cast<short>(flags | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF));
  }
  ~Spawn() {
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
  }
  Spawn(const Spawn&) = delete;
  Spawn& operator=(const Spawn&) = delete;

  // This program, with `what` in errors.
  Expected<pid_t> run(const ProgramStart& start, const std::string& what) {
    TERN_ASSIGN_OR_RETURN(const std::string program, own_program());
    std::vector<std::string> arguments{program}, variables;
    arguments.insert(arguments.end(), start.arguments.begin(), start.arguments.end());
    for (const auto& [name, value] : start.environment) variables.push_back(name + "=" + value);
    pid_t pid = 0;
    const int error =
        posix_spawn(&pid, program.c_str(), &files, &attributes, pointers(arguments).data(), pointers(variables).data());
    if (error == 0) return pid;
    errno = error;
    return failed(what);
  }

  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
};

}  // namespace

bool port_is_free(int port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return true;  // the server will say so
  const int one = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);  // as a server: old connections do not count
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = INADDR_ANY;
  const bool taken =
      ::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 && errno == EADDRINUSE;
  const bool listened = !taken && ::listen(fd, 1) != 0 && errno == EADDRINUSE;
  ::close(fd);
  return !taken && !listened;
}

Expected<pid_t> spawn_program(const ProgramStart& start, int input) {
  Spawn spawn(POSIX_SPAWN_SETPGROUP);
  posix_spawn_file_actions_adddup2(&spawn.files, input, 0);
  return spawn.run(start, "posix_spawn");
}

Expected<pid_t> start_background(const BackgroundStart& start) {
  Spawn spawn(POSIX_SPAWN_SETSID);
  posix_spawn_file_actions_addopen(&spawn.files, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&spawn.files, 1, start.output.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND,
                                   0644);
  posix_spawn_file_actions_adddup2(&spawn.files, 1, 2);
  TERN_ASSIGN_OR_RETURN(const pid_t pid, spawn.run({start.arguments, start.environment}, start.output));
  const auto since = start_time(pid);
  std::ofstream file(start.pid_file, std::ios::trunc);
  file << pid << ' ' << since.value_or(0) << '\n';
  file.close();
  if (!file) return failed(start.pid_file);
  return pid;
}

std::optional<Background> Background::find(const std::string& pid_file) {
  std::ifstream file(pid_file);
  int64_t pid = 0;
  uint64_t since = 0;
  if (!(file >> pid >> since) || pid <= 1 || pid > (1 << 30)) return std::nullopt;
  const int handle = static_cast<int>(::syscall(SYS_pidfd_open, static_cast<pid_t>(pid), 0));
  if (handle < 0) return std::nullopt;
  Background found(static_cast<pid_t>(pid), handle);
  // Compared once the handle stands: it then means this process and no later one.
  const auto now = start_time(found.pid_);
  if (!now || *now != since || !found.running()) return std::nullopt;
  return found;
}

Background::~Background() {
  if (handle_ >= 0) ::close(handle_);
}

bool Background::running() const {
  pollfd wait{.fd = handle_, .events = POLLIN, .revents = 0};
  return ::poll(&wait, 1, 0) == 0;
}

void Background::send(int signal) const { ::syscall(SYS_pidfd_send_signal, handle_, signal, nullptr, 0); }

}  // namespace tern::app
