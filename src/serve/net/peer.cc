#include "serve/net/peer.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>

#include <algorithm>
#include <charconv>
#include <cstring>

namespace tern::serve::net {
namespace {

constexpr Address kMapped = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

Address mapped(const in_addr& v4) {
  Address address = kMapped;
  std::memcpy(address.data() + 12, &v4, 4);
  return address;
}

}  // namespace

bool Network::holds(const Address& other) const {
  const auto whole = static_cast<size_t>(bits / 8);
  if (!std::equal(address.begin(), address.begin() + static_cast<std::ptrdiff_t>(whole), other.begin())) return false;
  const int rest = bits % 8;
  return rest == 0 || ((address[whole] ^ other[whole]) >> (8 - rest)) == 0;
}

Expected<Network> parse_network(const std::string& text) {
  const size_t slash = text.find('/');
  const std::string host = text.substr(0, slash);
  Network network;
  int most = 128, shift = 0;
  in_addr v4{};
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) {
    network.address = mapped(v4);
    most = 32, shift = 96;
  } else if (inet_pton(AF_INET6, host.c_str(), network.address.data()) != 1) {
    return make_error(ErrorCode::kInvalidArgument,
                      fmt::format("\"{}\" is no address and no network such as 10.0.0.0/8", text));
  }
  int bits = most;
  if (slash != std::string::npos) {
    const char* end = text.data() + text.size();
    const auto read = std::from_chars(text.data() + slash + 1, end, bits);
    if (read.ec != std::errc() || read.ptr != end || bits < 0 || bits > most) {
      return make_error(ErrorCode::kInvalidArgument,
                        fmt::format("\"{}\": the number of bits must be 0 to {}", text, most));
    }
  }
  network.bits = bits + shift;
  return network;
}

Peer peer_of(const sockaddr_storage& address, const std::vector<Network>& trusted, HashKey key) {
  Peer peer;
  Address bytes{};
  if (address.ss_family == AF_INET) {
    bytes = mapped(reinterpret_cast<const sockaddr_in&>(address).sin_addr);
  } else if (address.ss_family == AF_INET6) {
    std::memcpy(bytes.data(), &reinterpret_cast<const sockaddr_in6&>(address).sin6_addr, bytes.size());
  } else {
    peer.limited = false;  // a Unix socket has no address
  }
  static constexpr Network kLoopback4{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127}, 104};
  static constexpr Network kLoopback6{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}, 128};
  static constexpr Network kV4{kMapped, 96};
  const auto holds = [&](const Network& network) { return network.holds(bytes); };
  if (holds(kLoopback4) || holds(kLoopback6) || std::ranges::any_of(trusted, holds)) peer.limited = false;
  if (!kV4.holds(bytes)) std::fill(bytes.begin() + 8, bytes.end(), uint8_t{0});  // one client may own a whole /64
  peer.owner = siphash128(key, bytes.data(), bytes.size()).lo | 1;
  return peer;
}

}  // namespace tern::serve::net
