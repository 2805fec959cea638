// Products with large weights, which have kernels of their own on Hopper.
#include <string>

#include "cuda/tests/products.h"

namespace tern::cuda_test {
namespace {

// Just large enough to be walked through, or too wide for it.
void walked(Context& c, DType out) {
  const bool deterministic = c.deterministic();
  const DType b = DType::kBF16;
  const char* parts = deterministic && out == DType::kF32 ? "gemm_large_tile_8" : "gemm_wgmma_8";
  plain(c, "bf16", b, out, 3, 4104, 4104, false, 8, parts);
  plain(c, "bf16", b, out, 5, 1400, 12296, true, 8, deterministic ? parts : "gemm_streamk_8");
  plain(c, "bf16", b, out, 13, 2900, 6000, false, 8, deterministic ? "gemm_wgmma_16" : "gemm_streamk_16");
  plain(c, "bf16", b, out, 30, 2900, 6000, true, 8, deterministic ? "gemm_wgmma_32" : "gemm_streamk_32");
  plain(c, "bf16", b, out, 61, 2900, 6000, true, 8, deterministic ? "gemm_wgmma_64" : "gemm_streamk_64");
}

// In deterministic mode: tiles of 128 and of 192 rows, of parts, of their sums and whole.
void deterministic_tiles(Context& c) {
  constexpr DType kX = DType::kBF16, kOut = DType::kF32;
  for (const int64_t rows : {7, 20, 61, 100, 250, 600}) {
    const int tile = rows <= 8 ? 8 : rows <= 32 ? 32 : rows <= 64 ? 64 : rows <= 128 ? 128 : 256;
    const std::string own = "gemm_large_tile_" + std::to_string(tile), other = "gemm_wgmma_" + std::to_string(tile);
    const std::string parts = rows <= 256 ? own : "gemm_large_tile_sums";
    plain(c, "bf16", kX, kOut, rows, 1960, 8704, rows % 2 == 0, 8, parts.c_str());
    gated(c, rows, 12288, 704, false, own.c_str());
    if (c.smallest) continue;
    plain(c, "bf16", kX, kOut, rows, 6144, 2824, rows % 2 == 0, 8, (rows <= 64 ? other : parts).c_str());
    plain(c, "bf16", kX, kOut, rows, 25608, 712, rows % 2 == 0, 8, (rows <= 32 ? other : own).c_str());
  }
}

void deterministic_bits(Context& c) {
  same_bits(c, 1960, 8704), same_bits(c, 4096, 4096);  // parts of up to 256 rows are blocks
  same_bits(c, 6144, 2824), same_bits(c, 25608, 712);
  same_bits(c, 24576, 704, true, DType::kBF16);
}

// The same kernels outside deterministic mode: a gate that fills the GPU once, a long k, parts of tiles of 192 rows.
void deterministic_elsewhere(Context& c) {
  for (const int64_t rows : {100, 250, 600}) {
    gated(c, rows, 12288, 704, false, rows == 100 ? "gemm_large_tile_128" : "gemm_large_tile_256");
  }
  for (const int64_t k : {12296, 10248}) {
    const bool long_k = k == 12296;
    plain(c, "bf16", DType::kBF16, DType::kF32, 100, long_k ? 1400 : 5120, k, long_k, 8, "gemm_large_tile_128");
  }
  // Parts in tiles of 128 rows that fill an H200.
  plain(c, "bf16", DType::kBF16, DType::kF32, 40, 4090, 8200, true, 8, "gemm_large_tile_64");
  plain(c, "bf16", DType::kBF16, DType::kF32, 110, 4090, 4104, false, 0, "gemm_large_tile_128");
}

// Outside deterministic mode: four blocks that share tokens, of which the last ones bring none.
void clusters(Context& c) {
  constexpr DType kX = DType::kBF16, kOut = DType::kF32;
  plain(c, "bf16", kX, kOut, 17, 13700, 1232, true, 8, "gemm_large_tile_cluster_64");
  plain(c, "bf16", kX, kOut, 66, 13700, 1232, false, 8, "gemm_large_tile_cluster_128");
  for (const int64_t rows : {66, 100, 128}) {  // of 64 rows of the weight
    plain(c, "bf16", kX, kOut, rows, 6104, 2824, rows == 100, 8, "gemm_large_tile_slim_128");
  }
  if (c.smallest) return;
  plain(c, "bf16", kX, kOut, 64, 13824, 2048, false, 0, "gemm_large_tile_cluster_64");
  plain(c, "bf16", kX, kOut, 128, 13824, 2048, true, 0, "gemm_large_tile_cluster_128");
}

// Outside deterministic mode: a tile for each of an H200's multiprocessors, or three with a gate.
void even(Context& c) {
  constexpr DType kX = DType::kBF16, kOut = DType::kF32;
  for (const int64_t rows : {1, 5, 8, 13, 16, 30, 32}) {
    if (c.smallest && rows != 5 && rows != 13 && rows != 30) continue;
    const std::string name = rows <= 8    ? "gemm_single_wave_8"
                             : rows <= 16 ? "gemm_single_wave_16"
                                          : "gemm_single_wave_32";
    gated(c, rows, 12288, 704, rows % 2 == 0, name.c_str());
    if (rows > 16) continue;
    plain(c, "bf16", kX, kOut, rows, 14336, 1176, rows % 2 == 0, 8, name.c_str());
    plain(c, "bf16", kX, rows == 8 ? kX : kOut, rows, 6144, 2824, rows % 3 == 0, 0, name.c_str());
    if (rows <= 8) plain(c, "bf16", kX, kOut, rows, 4096, 4104, rows == 5, 8, name.c_str());
  }
}

}  // namespace

void test_large(Context& c) {
  if (!c.hopper()) return plain(c, "bf16", DType::kBF16, DType::kF32, 3, 4104, 520, true, 8, nullptr);
  for (const DType out : {DType::kBF16, DType::kF32}) {
    if (!c.smallest || out == DType::kBF16) walked(c, out);
  }
  if (c.deterministic()) deterministic_tiles(c);
  if (c.deterministic() && !c.smallest) deterministic_bits(c);
  if (!c.deterministic() && !c.smallest) deterministic_elsewhere(c);
  if (!c.deterministic()) clusters(c), even(c);
}

}  // namespace tern::cuda_test
