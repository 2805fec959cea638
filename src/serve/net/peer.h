// Who is at the other end of a connection.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/hash.h"

namespace tern::serve::net {

// An address as 128 bits; IPv4 as ::ffff:a.b.c.d.
using Address = std::array<uint8_t, 16>;

// Addresses with the same first bits.
struct Network {
  Address address{};
  int bits = 128;
  bool holds(const Address& other) const;
};
// "10.0.0.0/8", "192.0.2.7", "2001:db8::/32".
Expected<Network> parse_network(const std::string& text);

struct Peer {
  uint64_t owner = 0;   // names the address (of IPv6, its /64); never 0
  bool limited = true;  // false for loopback, Unix sockets and trusted proxies: many clients may stand behind them
};
Peer peer_of(const sockaddr_storage& address, const std::vector<Network>& trusted, HashKey key);

}  // namespace tern::serve::net
