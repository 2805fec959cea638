#include "fetch/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstring>

namespace tern::fetch {
namespace {

struct Range {
  std::array<uint8_t, 16> prefix;
  int bits;
};

bool within(const std::array<uint8_t, 16>& bytes, const Range& range) {
  int left = range.bits;
  for (size_t i = 0; left > 0; ++i, left -= 8) {
    const uint8_t mask = left >= 8 ? 0xFF : static_cast<uint8_t>(0xFF << (8 - left));
    if (((bytes[i] ^ range.prefix[i]) & mask) != 0) return false;
  }
  return true;
}

constexpr Range kSpecial4[] = {
    {{0}, 8},                  // this network
    {{10}, 8},                 // private
    {{100, 64}, 10},           // shared by carriers; also a metadata service (100.100.100.200)
    {{127}, 8},                // loopback
    {{168, 63, 129, 16}, 32},  // a cloud's host service behind a public address
    {{169, 254}, 16},          // link-local, metadata services
    {{172, 16}, 12},           // private
    {{192, 0, 0}, 24},         // protocol assignments, a metadata service
    {{192, 0, 2}, 24},         // documentation
    {{192, 31, 196}, 24},      // AS112
    {{192, 52, 193}, 24},      // AMT
    {{192, 88, 99}, 24},       // 6to4 relays
    {{192, 168}, 16},          // private
    {{192, 175, 48}, 24},      // AS112
    {{198, 18}, 15},           // benchmarking
    {{198, 51, 100}, 24},      // documentation
    {{203, 0, 113}, 24},       // documentation
    {{224}, 4},                // multicast
    {{240}, 4},                // reserved, broadcast
};

constexpr Range kGlobal6 = {{0x20}, 3};  // all that is assigned as global unicast
constexpr Range kSpecial6[] = {
    {{0x20, 0x01, 0x00}, 23},                    // protocol assignments: Teredo, benchmarking, ORCHID
    {{0x20, 0x01, 0x0D, 0xB8}, 32},              // documentation
    {{0x20, 0x02}, 16},                          // 6to4
    {{0x26, 0x20, 0x00, 0x4F, 0x80, 0x00}, 48},  // AS112
    {{0x3F, 0xFF, 0x00}, 20},                    // documentation
};
constexpr Range kMapped = {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF}, 96};
constexpr Range kNat64 = {{0x00, 0x64, 0xFF, 0x9B}, 96};

Address last_four(const Address& address) {
  Address out;
  std::memcpy(out.bytes.data(), address.bytes.data() + 12, 4);
  return out;
}

}  // namespace

std::optional<Address> parse_address(std::string_view text) {
  if (text.empty() || text.size() >= INET6_ADDRSTRLEN) return std::nullopt;
  const std::string copy(text);
  Address out;
  if (inet_pton(AF_INET, copy.c_str(), out.bytes.data()) == 1) return out;
  out.bytes = {};
  out.v6 = true;
  if (inet_pton(AF_INET6, copy.c_str(), out.bytes.data()) == 1) return out;
  return std::nullopt;
}

std::string address_text(const Address& address) {
  char text[INET6_ADDRSTRLEN] = {};
  inet_ntop(address.v6 ? AF_INET6 : AF_INET, address.bytes.data(), text, sizeof text);
  return text;
}

std::optional<Address> address_of(const sockaddr& from) {
  Address out;
  if (from.sa_family == AF_INET) {
    sockaddr_in in;
    std::memcpy(&in, &from, sizeof in);
    std::memcpy(out.bytes.data(), &in.sin_addr, 4);
    return out;
  }
  if (from.sa_family == AF_INET6) {
    sockaddr_in6 in;
    std::memcpy(&in, &from, sizeof in);
    if (in.sin6_scope_id != 0) return std::nullopt;
    out.v6 = true;
    std::memcpy(out.bytes.data(), &in.sin6_addr, 16);
    return out;
  }
  return std::nullopt;
}

bool is_public(const Address& address) {
  if (!address.v6) {
    for (const Range& range : kSpecial4) {
      if (within(address.bytes, range)) return false;
    }
    return true;
  }
  if (within(address.bytes, kMapped) || within(address.bytes, kNat64)) return is_public(last_four(address));
  if (!within(address.bytes, kGlobal6)) return false;
  for (const Range& range : kSpecial6) {
    if (within(address.bytes, range)) return false;
  }
  return true;
}

}  // namespace tern::fetch
