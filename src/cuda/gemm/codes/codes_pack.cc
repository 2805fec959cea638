// Codes of 16 rows in the order in which warps read them (codes.h).
#include <cstring>

#include "cuda/gemm/codes.h"

namespace tern::cuda {
namespace {

constexpr int kLaneBytes = 16;

// Four bytes in the order 0, 2, 1, 3.
uint32_t swap_middle(const uint8_t* codes) {
  uint32_t w;
  std::memcpy(&w, codes, sizeof w);
  return (w & 0xff0000ffu) | (w & 0x0000ff00u) << 8 | (w & 0x00ff0000u) >> 8;
}

// Eight codes as halves: values 0, 2, 4, 6 and then 1, 3, 5, 7.
uint32_t halves(const uint8_t* codes) {
  uint32_t w = 0;
  for (int i = 0; i < 8; ++i) w |= ((codes[i] + 8u) & 15u) << (i % 2 * 16 + i / 2 * 4);
  return w;
}

}  // namespace

void lay_stripe(const CodeLayout& layout, const uint8_t* codes, int64_t pitch, char* stripe) {
  const bool half = layout.kind == CodeKind::kInt4;
  for (int block = 0; block < layout.blocks(); ++block) {
    char* const to = stripe + int64_t{block} * layout.block_bytes();
    for (int lane = 0; lane < 32; ++lane) {
      const int r = lane / 4, q = lane % 4;
      for (int part = 0; part < 2; ++part) {
        uint8_t at[8], below[8];
        for (int e = 0; e < 8; ++e) {
          const uint8_t* from = codes + r * pitch + block * kCodeBlock + part * 32 + lane_column(q, e);
          at[e] = from[0], below[e] = from[8 * pitch];
        }
        if (half) {
          const uint32_t words[2] = {halves(at), halves(below)};
          std::memcpy(to + lane * kLaneBytes + part * 8, words, sizeof words);
        } else {
          const uint32_t words[4] = {swap_middle(at), swap_middle(below), swap_middle(at + 4), swap_middle(below + 4)};
          std::memcpy(to + part * 512 + lane * kLaneBytes, words, sizeof words);
        }
      }
    }
  }
}

}  // namespace tern::cuda
