// A server in the background: start_server and stop_server (paddlenlp-server.md 5.1, 5.2). The process is known by the
// number in a file of the log folder and by the time it started, never by a name.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"

namespace tern::app {

// True when nothing listens on a port of this machine.
bool port_is_free(int port);

struct ProgramStart {
  std::vector<std::string> arguments;  // of this program
  std::vector<std::pair<std::string, std::string>> environment;
};
// Starts this program in a process group of its own, with signals as they are by default and `input` for its standard
// input; its output is this one's.
Expected<pid_t> spawn_program(const ProgramStart& start, int input);

struct BackgroundStart {
  std::vector<std::string> arguments;  // of this program
  std::vector<std::pair<std::string, std::string>> environment;
  std::string output;    // file that takes what it prints
  std::string pid_file;  // written once it runs
};
// Starts this program in a session of its own and does not wait for it.
Expected<pid_t> start_background(const BackgroundStart& start);

// What the pid file names, while it still runs and is that process.
class Background {
 public:
  // Nothing when there is no file, or nothing runs that started when it says.
  static std::optional<Background> find(const std::string& pid_file);
  ~Background();
  Background(Background&& other) noexcept : pid_(other.pid_), handle_(std::exchange(other.handle_, -1)) {}
  Background& operator=(Background&&) = delete;
  pid_t pid() const { return pid_; }
  bool running() const;
  void send(int signal) const;

 private:
  Background(pid_t pid, int handle) : pid_(pid), handle_(handle) {}
  pid_t pid_;
  int handle_;  // pidfd: another process never takes its place
};

}  // namespace tern::app
