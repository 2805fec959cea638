// The hash of a context that FakeModel keeps in its cache: one number for all tokens up to a position.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "device/communicator.h"
#include "model/ranks.h"

namespace tern::engine {

struct FakeChain {
  static constexpr uint64_t kNanChain = ~uint64_t{0};
  static constexpr int32_t kNanToken = std::numeric_limits<int32_t>::min();
  static uint64_t mix(uint64_t chain, int32_t token, int32_t position) {
    if (chain == kNanChain || token == kNanToken) return kNanChain;
    uint64_t z = chain +
                 0x9e3779b97f4a7c15ull *
                     (static_cast<uint64_t>(static_cast<uint32_t>(token)) << 24 ^ static_cast<uint32_t>(position)) +
                 1;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  }
  // What a token counts as: itself, where it stands at its index and shows no picture.
  static int32_t seen(int32_t token, int32_t index, const int32_t (&at)[3], std::span<const float> picture) {
    if (picture.empty() && at[0] == index && at[1] == index && at[2] == index) return token;
    uint64_t z = mix(static_cast<uint64_t>(at[0]) << 40 ^ static_cast<uint64_t>(at[1]) << 20, token, at[2]);
    for (float x : picture) {
      if (x != x) return kNanToken;
      z = mix(z, static_cast<int32_t>(x * (1 << 24)), 7);
    }
    return static_cast<int32_t>(z >> 34);
  }
  // What follows `prompt` up to `count` tokens or `eos`; next(chain) is what follows a context.
  template <class Next>
  static std::vector<int32_t> continuation(std::span<const int32_t> prompt, int count, int32_t eos, Next&& next) {
    uint64_t chain = 0;
    int32_t position = 0;
    for (int32_t id : prompt) chain = mix(chain, id, position++);
    std::vector<int32_t> out;
    while (static_cast<int>(out.size()) < count) {
      out.push_back(next(chain));
      if (out.back() == eos) break;
      chain = mix(chain, out.back(), position++);
    }
    return out;
  }
  // The vector that a pooling model makes of a context.
  static void pool(uint64_t chain, std::span<float> out) {
    for (float& v : out) {
      chain = chain * 6364136223846793005ull + 1442695040888963407ull;
      v = static_cast<float>(chain >> 40);
    }
  }
  static std::vector<float> vector_of(std::span<const int32_t> prompt, int width) {
    uint64_t chain = 0;
    int32_t position = 0;
    for (const int32_t id : prompt) chain = mix(chain, id, position++);
    std::vector<float> out(static_cast<size_t>(width));
    pool(chain, out);
    return out;
  }
};

// A rank's columns of a row of logits that `fill` makes whole.
template <class Fill>
void fill_columns(const device::Communicator& c, int vocab, char* row, Fill&& fill) {
  auto* const out = reinterpret_cast<float*>(row);
  if (c.alone()) return fill(out);
  std::vector<float> whole(static_cast<size_t>(vocab));
  fill(whole.data());
  const auto [first, count] = model::vocabulary_part(vocab, c.rank, c.ranks);
  std::copy_n(whole.begin() + first, count, out);
}

}  // namespace tern::engine
