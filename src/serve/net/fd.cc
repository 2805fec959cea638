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
#include <optional>

namespace tern::serve::net {

void Fd::reset() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

namespace {

constexpr size_t kMaxAddresses = 4;
constexpr int kPortTries = 16;  // for a port that is free in every family

in_port_t& port_of(sockaddr_storage& address) {
  return address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&address)->sin6_port
                                       : reinterpret_cast<sockaddr_in*>(&address)->sin_port;
}

// A listener on one address; errno says why there is none. `only`: an IPv6 socket takes no IPv4 connections, so that a
// socket of the other family can have the same port.
std::optional<Listener> listen_at(sockaddr_storage address, socklen_t size, int port, bool only) {
  port_of(address) = htons(static_cast<in_port_t>(port));
  Fd fd(::socket(address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return std::nullopt;
  const int on = 1;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);  // a restart need not wait for old connections
  if (only && address.ss_family == AF_INET6) setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
  if (::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), size) != 0) return std::nullopt;
  if (::listen(fd.get(), 4096) != 0) return std::nullopt;
  getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size);
  return Listener{std::move(fd), ntohs(port_of(address))};
}

struct SocketAddress {
  sockaddr_storage bytes{};
  socklen_t size = 0;
};

Expected<std::vector<SocketAddress>> resolve(const std::string& host, const std::string& where) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int code = getaddrinfo(host.empty() ? nullptr : host.c_str(), "0", &hints, &found);
  if (code != 0) {
    return make_error(ErrorCode::kInvalidArgument, fmt::format("cannot resolve {}: {}", where, gai_strerror(code)),
                      "host");
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> list(found, &freeaddrinfo);
  std::vector<SocketAddress> all;
  const auto add = [&all](const void* bytes, socklen_t size) {
    SocketAddress address;
    std::memcpy(&address.bytes, bytes, size);
    address.size = size;
    const auto same = [&](const SocketAddress& a) { return a.size == size && std::memcmp(&a.bytes, bytes, size) == 0; };
    if (all.size() < kMaxAddresses && std::none_of(all.begin(), all.end(), same)) all.push_back(address);
  };
  for (const addrinfo* a = found; a != nullptr; a = a->ai_next) add(a->ai_addr, a->ai_addrlen);
  if (host == "localhost") {  // whatever the hosts file says of one family
    sockaddr_in v4{};
    v4.sin_family = AF_INET;
    v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    add(&v4, sizeof v4);
    sockaddr_in6 v6{};
    v6.sin6_family = AF_INET6;
    v6.sin6_addr = in6addr_loopback;
    add(&v6, sizeof v6);
  }
  return all;
}

}  // namespace

Expected<std::vector<Listener>> listen_on(const std::string& host, int port) {
  const std::string where = fmt::format("{}:{}", host, port);
  TERN_ASSIGN_OR_RETURN(const auto addresses, resolve(host, where));
  int error = 0;
  for (int attempt = 0; attempt < kPortTries; ++attempt) {
    std::vector<Listener> listeners;
    bool taken = false;
    for (const SocketAddress& address : addresses) {
      const int here = listeners.empty() ? port : listeners[0].port;
      auto listener = listen_at(address.bytes, address.size, here, addresses.size() > 1);
      if (listener) {
        listeners.push_back(*std::move(listener));
        continue;
      }
      const int why = errno;
      const bool absent = why == EADDRNOTAVAIL || why == EAFNOSUPPORT;  // no such address or family here
      if (error == 0 || !absent) error = why;
      taken |= !absent;
    }
    if (!taken && !listeners.empty()) return listeners;
    if (port != 0 || listeners.empty()) break;  // a port the system chose may be taken in the other family: once more
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
