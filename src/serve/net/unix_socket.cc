#include "serve/net/unix_socket.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace tern::serve::net {
namespace {

Error cannot(const std::string& path, const std::string& why) {
  return make_error(ErrorCode::kIo, fmt::format("cannot listen on the Unix socket {}: {}", path, why), "uds");
}

// Takes a socket's file out of the way when nobody listens there any more.
Status clear_place(const std::string& path, const sockaddr_un& address, socklen_t size) {
  struct stat found {};
  if (::lstat(path.c_str(), &found) != 0) {
    return errno == ENOENT ? Status{} : Status{cannot(path, std::strerror(errno))};
  }
  if (!S_ISSOCK(found.st_mode)) return cannot(path, "a file that is no socket stands there");
  const Fd probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!probe) return cannot(path, std::strerror(errno));
  const bool answered = ::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), size) == 0;
  if (answered || errno != ECONNREFUSED) return cannot(path, "another server listens there");
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) return cannot(path, std::strerror(errno));
  return {};
}

}  // namespace

void SocketFile::remove() {
  if (path_.empty()) return;
  struct stat found {};
  if (::lstat(path_.c_str(), &found) == 0 && found.st_dev == device_ && found.st_ino == inode_) ::unlink(path_.c_str());
  path_.clear();
}

Expected<UnixListener> listen_unix(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path) {
    return cannot(path, fmt::format("a path of 1 to {} bytes is needed", sizeof address.sun_path - 1));
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size() + 1);
  TERN_RETURN_IF_ERROR(clear_place(path, address, size));
  UnixListener out;
  out.listener.fd = Fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const int fd = out.listener.fd.get();
  // Linux gives the file the socket's mode: nobody can connect between bind and a chmod.
  if (fd < 0 || ::fchmod(fd, 0600) != 0 || ::bind(fd, reinterpret_cast<const sockaddr*>(&address), size) != 0) {
    return cannot(path, std::strerror(errno));
  }
  struct stat made {};
  if (::lstat(path.c_str(), &made) != 0) return cannot(path, std::strerror(errno));
  out.file = SocketFile(path, made.st_dev, made.st_ino);
  if (::listen(fd, 4096) != 0) return cannot(path, std::strerror(errno));
  return out;
}

}  // namespace tern::serve::net
