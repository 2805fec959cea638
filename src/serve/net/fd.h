// File descriptors that close themselves, and sockets that listen.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/error.h"

namespace tern::serve::net {

class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  ~Fd() { reset(); }
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void reset();

 private:
  int fd_ = -1;
};

struct Listener {
  Fd fd;
  int port = 0;  // the one bound, also when 0 was asked for
};

// Non-blocking TCP listeners on every address that `host` stands for ("localhost": 127.0.0.1 and ::1), at most four,
// all on one port. Addresses this machine does not have are left out, as long as one is left. Errors (kIo) name host
// and port; a taken port says so.
Expected<std::vector<Listener>> listen_on(const std::string& host, int port);

// How many connections may be open at once under the process's file limit: a reserve stays for files and the engine.
size_t connections_allowed();

}  // namespace tern::serve::net
