#include "app/download/md5.h"

#include <bit>
#include <cmath>
#include <cstring>

namespace tern::app {
namespace {

constexpr int kShifts[4][4] = {{7, 12, 17, 22}, {5, 9, 14, 20}, {4, 11, 16, 23}, {6, 10, 15, 21}};

const std::array<uint32_t, 64>& sines() {
  static const std::array<uint32_t, 64> table = [] {
    std::array<uint32_t, 64> t{};
    for (size_t i = 0; i < t.size(); ++i) {
      t[i] = static_cast<uint32_t>(std::floor(std::abs(std::sin(static_cast<double>(i + 1))) * 4294967296.0));
    }
    return t;
  }();
  return table;
}

uint32_t mix(size_t round, uint32_t b, uint32_t c, uint32_t d) {
  switch (round) {
    case 0:
      return (b & c) | (~b & d);
    case 1:
      return (d & b) | (~d & c);
    case 2:
      return b ^ c ^ d;
    default:
      return c ^ (b | ~d);
  }
}

size_t word_of(size_t round, size_t i) {
  constexpr size_t kStep[] = {1, 5, 3, 7}, kFirst[] = {0, 1, 5, 0};
  return (kFirst[round] + kStep[round] * i) % 16;
}

}  // namespace

void Md5::block(const uint8_t* at) {
  uint32_t words[16];
  for (size_t i = 0; i < 16; ++i) {
    words[i] = static_cast<uint32_t>(at[4 * i]) | static_cast<uint32_t>(at[4 * i + 1]) << 8 |
               static_cast<uint32_t>(at[4 * i + 2]) << 16 | static_cast<uint32_t>(at[4 * i + 3]) << 24;
  }
  const auto& table = sines();
  auto [a, b, c, d] = state_;
  for (size_t i = 0; i < 64; ++i) {
    const size_t round = i / 16;
    const uint32_t sum = a + mix(round, b, c, d) + table[i] + words[word_of(round, i)];
    a = d, d = c, c = b;
    b += std::rotl(sum, kShifts[round][i % 4]);
  }
  state_[0] += a, state_[1] += b, state_[2] += c, state_[3] += d;
}

void Md5::add(const void* data, size_t size) {
  const auto* at = static_cast<const uint8_t*>(data);
  size_t held = bytes_ % 64;
  bytes_ += size;
  while (size > 0) {
    if (held == 0 && size >= 64) {
      block(at);
      at += 64, size -= 64;
      continue;
    }
    const size_t part = size < 64 - held ? size : 64 - held;
    std::memcpy(held_.data() + held, at, part);
    at += part, size -= part, held += part;
    if (held == 64) {
      block(held_.data());
      held = 0;
    }
  }
}

std::string Md5::hex() {
  const uint64_t bits = bytes_ * 8;
  const uint8_t one = 0x80, zero = 0;
  add(&one, 1);
  while (bytes_ % 64 != 56) add(&zero, 1);
  uint8_t length[8];
  for (size_t i = 0; i < 8; ++i) length[i] = static_cast<uint8_t>(bits >> (8 * i));
  add(length, sizeof length);
  std::string out;
  for (const uint32_t word : state_) {
    for (int i = 0; i < 4; ++i) {
      constexpr char kDigits[] = "0123456789abcdef";
      const uint32_t byte = word >> (8 * i) & 0xff;
      out += kDigits[byte >> 4];
      out += kDigits[byte & 15];
    }
  }
  return out;
}

}  // namespace tern::app
