// What each kernel of a product can take, and where it is ahead of others: the conditions of choose_gemm() (choice.h),
// of the product's shape and types, the mode and the device alone. Kernels share constants and sizes with them.
#pragma once

#include "cuda/gemm/gemm_args.h"
#include "cuda/gemm/gemm_facts.h"

namespace tern::cuda {

inline constexpr int64_t kWgmmaRows = 64;    // from here on cuBLASLt is ahead, when it is there
inline constexpr int64_t kNarrowRows = 512;  // from here on what products leave is worth its bytes: bfloat16
inline constexpr int64_t kLargeWeight = int64_t{16} << 20;  // values
inline constexpr int64_t kGemvRows = 4, kRegisterResidentRows = 8, kStreamKRows = 64, kLargeTileRows = 128;
inline constexpr int64_t kTickets = 4096;  // of gemm_streamk, by warps of tiles
inline constexpr size_t kLibraryWorkspace = size_t{32} << 20;

// Any GPU. mma_fits(): whether tensor cores can read these rows (bfloat16, 16-byte aligned).
bool mma_fits(const Gemm& g);
bool gemv_fits(const Gemm& g);
bool mixed_fits(const Gemm& g);
inline constexpr int kMixedTokens = 32;  // of a tile of gemm_mixed

// The rest is for Hopper and needs mma_fits(). Few rows and a small weight: one block has 16 rows of it.
bool register_resident_fits(const Gemm& g, const GemmFacts& f);
inline constexpr int kResidentRun = 128;   // values of k per warp and run
inline constexpr int kKeptSquares = 128;   // sums of squares of a row that wait in shared memory
inline constexpr int kBlocksTogether = 2;  // of a multiprocessor that are sure to run at once where they are many
bool many_resident_blocks(const Gemm& g, int multiprocessors);
// Whether it can do the first part of a norm behind it, the second part of one before it.
bool register_resident_normed(const Gemm& g, const GemmFacts& f);
bool register_resident_scaled(const Gemm& g, const GemmFacts& f);

// The same where the whole weight finds room on the GPU at once.
bool smem_resident_fits(const Gemm& g, const GemmFacts& f);
inline constexpr int kSmemPlanes = 4;             // of 64 values of k: a warp's run
inline constexpr int kSmemPlaneBytes = 16 * 128;  // of 16 rows
inline constexpr int kMostSmemWarps = 16, kLeastSmemWarps = 4;
int smem_resident_warps(const Gemm& g);
size_t smem_resident_bytes(int warps);

// Few rows and a large weight whose tiles are shared out evenly; not in deterministic mode.
bool single_wave_fits(const Gemm& g, const GemmFacts& f);
inline constexpr int kSingleWaveWidth = 32;  // rows of a tile behind which a norm may follow
// Rows of the weight in a tile, where that makes a tile for each multiprocessor; else 0.
int single_wave_rows(const Gemm& g, int multiprocessors);

// Few rows and a large weight with many values of k; not in deterministic mode.
bool streamk_fits(const Gemm& g, const GemmFacts& f);

// Into how many parts gemm_wgmma cuts k: 1, 2, 4 or 8. In deterministic mode that follows from the weight alone.
int wgmma_split(int64_t n, int64_t k);
int wgmma_split(const Gemm& g, const GemmFacts& f);
// Up to 64 rows and a small weight whose k is cut.
bool splitk_dsmem_fits(const Gemm& g, int split);

// Large weights in tiles of 128 or 192 rows: deterministic mode. kTall: 192; kLow: 128; kSums: a block has all parts of
// k; kGated: with a gate; kSlim and kCluster, not in deterministic mode: clusters of four that share tokens, with 64 or
// 128 rows a tile. kNone: gemm_wgmma, which has the same sums.
enum class LargeTile : uint8_t { kNone, kGated, kSlim, kCluster, kTall, kLow, kSums };
LargeTile large_tile(const Gemm& g, int split, const GemmFacts& f);
int large_tile_split(const Gemm& g, const GemmFacts& f);
// Whether one of these is ahead outside deterministic mode: of up to kLargeTileRows rows, with a gate of any number.
bool large_tile_takes(const Gemm& g, const GemmFacts& f);

// Many rows and their gate in one, where that fills the GPU; not in deterministic mode, where their bits would not be
// those of few rows.
enum class GateTiles : uint8_t { kNone, kWide, kNarrow, kSmall };
GateTiles gate_tiles(const Gemm& g, const GemmFacts& f);
// Rows of gate in a tile, neighbouring tiles of a cluster; tokens of a block, blocks that share weights.
struct GateShape {
  int half, across;
};
inline constexpr GateShape kGateWide{128, 1};
// 30 clusters of four run on 132 multiprocessors: of 3,072 columns these leave few of them idle at 512 and 256 tokens.
inline constexpr GateShape kGateNarrow{104, 2}, kGateSmall{56, 2};
inline constexpr int kGateTokens = 128, kGatePair = 2;

// Whether two halves of k, which a norm behind the product adds up, find room in cuBLASLt's workspace.
bool library_halves_fit(const Gemm& g);

}  // namespace tern::cuda
