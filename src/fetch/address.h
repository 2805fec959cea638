// Internet addresses and which of them belong to the public internet.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

struct sockaddr;

namespace tern::fetch {

struct Address {
  bool v6 = false;
  std::array<uint8_t, 16> bytes{};  // network order; IPv4 fills the first 4

  bool operator==(const Address&) const = default;
};

// Dotted quad without leading zeros, or IPv6 text without brackets and zone. Nothing else is an address: no decimal,
// octal, hexadecimal or short forms.
std::optional<Address> parse_address(std::string_view text);
std::string address_text(const Address& address);
// AF_INET and AF_INET6 with no scope id; nothing for other families.
std::optional<Address> address_of(const sockaddr& from);

// False for every address that the IANA special-purpose registries do not call globally reachable (loopback, private,
// link-local, shared, benchmarking, documentation, multicast, reserved, ...), for addresses of clouds' metadata
// services, and for IPv6 forms that lead to such an IPv4 address (mapped, NAT64). 6to4, Teredo and IPv4-compatible
// addresses are refused whole.
bool is_public(const Address& address);

}  // namespace tern::fetch
