// MD5 (RFC 1321): the sums that lists of downloads carry. It finds accidents, not attackers.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace tern::app {

class Md5 {
 public:
  void add(const void* data, size_t size);
  std::string hex();  // 32 lower-case digits; once, at the end

 private:
  void block(const uint8_t* at);
  std::array<uint32_t, 4> state_ = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476};
  uint64_t bytes_ = 0;
  std::array<uint8_t, 64> held_{};
};

}  // namespace tern::app
