#include "fetch/base64.h"

#include <array>
#include <cstring>

#include "base/cpu_isa.h"

namespace tern::fetch {
namespace {

constexpr uint8_t kNone = 0xFF, kSpace = 0xFE, kPad = 0xFD;

constexpr std::array<uint8_t, 256> make_values() {
  std::array<uint8_t, 256> out{};
  for (auto& v : out) v = kNone;
  for (int i = 0; i < 26; ++i) {
    out['A' + i] = static_cast<uint8_t>(i);
    out['a' + i] = static_cast<uint8_t>(26 + i);
  }
  for (int i = 0; i < 10; ++i) out['0' + i] = static_cast<uint8_t>(52 + i);
  out['+'] = 62;
  out['/'] = 63;
  out['='] = kPad;
  for (const char c : {' ', '\t', '\r', '\n', '\v', '\f'}) out[static_cast<uint8_t>(c)] = kSpace;
  return out;
}
constexpr auto kValues = make_values();

using Groups = size_t (*)(const uint8_t*, size_t, uint8_t*);

Groups choose_groups() {
#if defined(__x86_64__)
  if (active_isa() >= Isa::kAvx2) return internal::decode_groups_avx2;
#endif
  return internal::decode_groups;
}

}  // namespace

size_t internal::decode_groups(const uint8_t* text, size_t size, uint8_t* out) {
  size_t i = 0;
  for (; i + 4 <= size; i += 4, out += 3) {
    const uint32_t a = kValues[text[i]], b = kValues[text[i + 1]], c = kValues[text[i + 2]], d = kValues[text[i + 3]];
    if ((a | b | c | d) & 0xC0) break;
    const uint32_t bits = a << 18 | b << 12 | c << 6 | d;
    out[0] = static_cast<uint8_t>(bits >> 16);
    out[1] = static_cast<uint8_t>(bits >> 8);
    out[2] = static_cast<uint8_t>(bits);
  }
  return i;
}

std::optional<std::vector<std::byte>> decode_base64(std::string_view input) {
  const auto* text = reinterpret_cast<const uint8_t*>(input.data());
  const size_t size = input.size();
  std::vector<std::byte> out(size / 4 * 3 + 16);
  auto* const start = reinterpret_cast<uint8_t*>(out.data());
  uint8_t* to = start;
  const Groups groups = choose_groups();
  uint32_t bits = 0;
  int held = 0, pads = 0;
  for (size_t i = 0; i < size;) {
    if (held == 0 && pads == 0) {
      const size_t read = groups(text + i, size - i, to);
      to += read / 4 * 3;
      i += read;
      if (i == size) break;
    }
    const uint8_t value = kValues[text[i++]];
    if (value == kSpace) continue;
    if (value == kPad) {
      if (held < 2 || held + ++pads > 4) return std::nullopt;
      continue;
    }
    if (value == kNone || pads != 0) return std::nullopt;
    bits = bits << 6 | value;
    if (++held < 4) continue;
    *to++ = static_cast<uint8_t>(bits >> 16);
    *to++ = static_cast<uint8_t>(bits >> 8);
    *to++ = static_cast<uint8_t>(bits);
    bits = 0;
    held = 0;
  }
  if (held != 0) {
    if (held + pads != 4) return std::nullopt;
    bits <<= 6 * (4 - held);
    *to++ = static_cast<uint8_t>(bits >> 16);
    if (held == 3) *to++ = static_cast<uint8_t>(bits >> 8);
  }
  out.resize(static_cast<size_t>(to - start));
  return out;
}

}  // namespace tern::fetch
