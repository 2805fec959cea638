#include "serve/net/fd.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

namespace tern::serve::net {

void Fd::reset() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

Expected<Listener> listen_on(const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const std::string where = fmt::format("{}:{}", host, port);
  const int code = getaddrinfo(host.empty() ? nullptr : host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (code != 0) {
    return make_error(ErrorCode::kInvalidArgument, fmt::format("cannot resolve {}: {}", where, gai_strerror(code)),
                      "host");
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> list(found, &freeaddrinfo);
  int error = 0;
  for (const addrinfo* a = found; a != nullptr; a = a->ai_next) {
    Fd fd(::socket(a->ai_family, a->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, a->ai_protocol));
    if (!fd) {
      error = errno;
      continue;
    }
    const int on = 1;
    setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);  // a restart need not wait for old connections
    if (::bind(fd.get(), a->ai_addr, a->ai_addrlen) != 0 || ::listen(fd.get(), 4096) != 0) {
      error = errno;
      continue;
    }
    sockaddr_storage bound{};
    socklen_t size = sizeof bound;
    getsockname(fd.get(), reinterpret_cast<sockaddr*>(&bound), &size);
    const in_port_t bound_port = bound.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&bound)->sin6_port
                                                             : reinterpret_cast<sockaddr_in*>(&bound)->sin_port;
    return Listener{std::move(fd), ntohs(bound_port)};
  }
  if (error == EADDRINUSE) {
    return make_error(ErrorCode::kIo, fmt::format("cannot listen on {}: the address is already in use", where), "port");
  }
  return make_error(ErrorCode::kIo, fmt::format("cannot listen on {}: {}", where, std::strerror(error)), "port");
}

size_t connections_allowed() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 512;
  const size_t files = limit.rlim_cur == RLIM_INFINITY ? 1u << 20 : static_cast<size_t>(limit.rlim_cur);
  const size_t reserve = std::clamp<size_t>(files / 4, 24, 128);
  return files > reserve + 8 ? std::min<size_t>(files - reserve, 1u << 17) : 8;
}

}  // namespace tern::serve::net
