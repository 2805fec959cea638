// Weights kept as codes with scales (wint8, wint4, block_wise_fp8) and multiplied with bfloat16 activations on portable
// tensor cores: the layout in memory and what a product is given.
//
// 16 rows of the weight are a stripe; stripes follow each other. In a stripe 64 columns are a block, which holds what
// one warp's steps of mma.m16n8k16 (or a warp's share of wgmma) want: lane l = 4 r + q has eight columns of either 32,
// of rows r and r + 8: its value number 4 s + 2 h + i is column 16 s + 8 h + 2 q + i (lane_column()). Bytes: 16 per
// lane for each 32 columns, as words (row r, first four), (row r + 8, first four), (row r, last four), (row r + 8, last
// four), whose bytes are values 0, 2, 1, 3. Halves of bytes: 16 per lane for 64 columns, as words (row r, first 32
// columns), (row r + 8, first 32), (row r, last 32), (row r + 8, last 32), whose four lower halves are values 0, 2, 4,
// 6 and the upper ones 1, 3, 5, 7, each code + 8. Behind the blocks lie the scales: [groups][16 rows] float32. With
// zero points every group's scales are followed by [16 rows] pairs of bfloat16, both the zero point's negative: value =
// (code - zero) * scale. Rows and columns beyond the weight are zero.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tern::cuda {

enum class CodeKind : uint8_t { kInt8, kInt4, kE4m3 };

inline constexpr int kStripe = 16, kCodeBlock = 64;

// Which of 32 columns is value number e of lane 4 r + q.
constexpr int lane_column(int q, int e) { return e / 4 * 16 + e / 2 % 2 * 8 + q * 2 + e % 2; }

// Where everything lies; the same on both sides.
struct CodeLayout {
  CodeKind kind = CodeKind::kInt8;
  int group = 0;  // columns of a scale: 0: all; 32, 64 or 128
  int shift = 0;  // columns by which a rank's slice begins inside a group
  int n = 0, k = 0;
  bool zeros = false;

  constexpr int block_bytes() const { return kind == CodeKind::kInt4 ? 512 : 1024; }
  constexpr int blocks() const { return (k + kCodeBlock - 1) / kCodeBlock; }
  constexpr int groups() const { return group == 0 ? 1 : (k + shift + group - 1) / group; }
  constexpr int64_t code_bytes() const { return int64_t{blocks()} * block_bytes(); }
  constexpr int group_bytes() const { return kStripe * 4 * (zeros ? 2 : 1); }
  constexpr int64_t stripe_bytes() const { return code_bytes() + int64_t{groups()} * group_bytes(); }
  constexpr int64_t stripes() const { return (n + kStripe - 1) / kStripe; }
  constexpr int64_t bytes() const { return stripes() * stripe_bytes(); }
};

// Lays 16 rows out: `codes`: one byte per value, [16][pitch], int4 in two's complement, zero beyond the weight.
void lay_stripe(const CodeLayout& layout, const uint8_t* codes, int64_t pitch, char* stripe);

}  // namespace tern::cuda
