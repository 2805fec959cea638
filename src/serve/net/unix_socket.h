// A listening Unix socket that is a file of its own.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "base/error.h"
#include "serve/net/fd.h"

namespace tern::serve::net {

// Removes the socket's file at its end, unless another file stands there by then.
class SocketFile {
 public:
  SocketFile() = default;
  SocketFile(std::string path, uint64_t device, uint64_t inode)
      : path_(std::move(path)), device_(device), inode_(inode) {}
  ~SocketFile() { remove(); }
  SocketFile(SocketFile&& other) noexcept
      : path_(std::exchange(other.path_, {})), device_(other.device_), inode_(other.inode_) {}
  SocketFile& operator=(SocketFile&& other) noexcept {
    if (this != &other) {
      remove();
      path_ = std::exchange(other.path_, {});
      device_ = other.device_;
      inode_ = other.inode_;
    }
    return *this;
  }

 private:
  void remove();
  std::string path_;
  uint64_t device_ = 0, inode_ = 0;
};

struct UnixListener {
  Listener listener;  // its port is 0
  SocketFile file;
};

// Non-blocking, mode 0600 from the moment the file exists. A socket that nobody listens on any more is replaced. Errors
// (kIo): somebody listens there, a file that is no socket, a path of 108 bytes or more, a folder that is not there.
Expected<UnixListener> listen_unix(const std::string& path);

}  // namespace tern::serve::net
