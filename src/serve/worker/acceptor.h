// The listening sockets of a worker: accepts connections and deals them to all workers in turn.
#pragma once

#include <cstdint>
#include <vector>

#include "serve/net/fd.h"
#include "serve/net/poller.h"
#include "serve/worker/connections.h"
#include "serve/worker/shared.h"

namespace tern::serve {

struct Listening {
  net::Listener listener;
  PortKind port = PortKind::kMain;
  bool secure = false;  // speaks TLS
};

class Acceptor {
 public:
  // `worker`: the number of the one whose thread this is. Its own connections go to `connections`.
  Acceptor(Shared& shared, int worker, std::vector<Listening> listeners, net::Poller& poller, Connections& connections);

  // Listeners have the keys 1, 2, ... in the poller; those of connections are higher.
  bool listens(uint64_t key) const { return key <= listeners_.size(); }
  void accept(uint64_t key);
  void close();

 private:
  Shared& shared_;
  const int worker_;
  std::vector<Listening> listeners_;
  net::Fd reserve_;  // closed to accept and turn away when no descriptor is left
  net::Poller& poller_;
  Connections& connections_;
  int next_worker_ = 0;
};

}  // namespace tern::serve
