#include "serve/worker/acceptor.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

namespace tern::serve {

Acceptor::Acceptor(Shared& shared, int worker, std::vector<Listening> listeners, net::Poller& poller,
                   Connections& connections)
    : shared_(shared),
      worker_(worker),
      listeners_(std::move(listeners)),
      reserve_(::open("/dev/null", O_RDONLY | O_CLOEXEC)),
      poller_(poller),
      connections_(connections) {
  for (size_t i = 0; i < listeners_.size(); ++i) poller_.add(listeners_[i].listener.fd.get(), EPOLLIN, i + 1);
}

void Acceptor::accept(uint64_t key) {
  const Listening& listening = listeners_[key - 1];
  for (int i = 0; i < 64; ++i) {
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    const int fd = ::accept4(listening.listener.fd.get(), reinterpret_cast<sockaddr*>(&address), &size,
                             SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if ((errno == EMFILE || errno == ENFILE) && reserve_) {
        // No descriptor left: use the reserved one to turn the client away instead of spinning on a full backlog.
        reserve_.reset();
        if (const net::Fd refused(
                ::accept4(listening.listener.fd.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
            refused) {
          Connections::turn_away(refused.get(), listening.secure);
        }
        reserve_ = net::Fd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
        connections_.evict_idle();
      }
      return;
    }
    NewConnection fresh{net::Fd(fd),
                        listening.port,
                        listening.secure,
                        net::peer_of(address, shared_.config.http.trusted, shared_.key),
                        {}};
    const size_t most = shared_.config.http.connections_per_address;
    if (most > 0 && fresh.peer.limited) {
      fresh.place = shared_.addresses.enter(fresh.peer.owner, most);
      if (!fresh.place) {
        Connections::turn_away(fresh.fd.get(), fresh.secure);
        continue;
      }
    }
    const int worker = next_worker_++ % static_cast<int>(shared_.workers.size());
    if (worker == worker_)
      connections_.add(std::move(fresh));
    else
      shared_.post_control(worker, std::move(fresh));
  }
}

void Acceptor::close() {
  for (auto& listening : listeners_) {
    poller_.remove(listening.listener.fd.get());
    listening.listener.fd.reset();
  }
}

}  // namespace tern::serve
