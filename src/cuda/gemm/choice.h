// Which kernel takes a product with one weight: pure functions of its shape and types, the mode and the device
// (README.md, "Which kernel takes a product"; cases in tests/choice/gemm_test.cc). Products with a weight per expert:
// choice_grouped.h. Whoever adds a kernel or a weight format adds a value here, its condition to fits.h, a line to
// choose_gemm() or choose_gated(), one to run_gemm() in run.cc, and cases to the test.
#pragma once

#include "cuda/gemm/gemm_args.h"
#include "cuda/gemm/gemm_facts.h"

namespace tern::cuda {

enum class GemmKernel : uint8_t {
  kMixed,             // bf16 rows with a float32 weight of few columns (routers)
  kGemv,              // up to four rows on GPUs before Hopper
  kLibraryUnaligned,  // cuBLASLt, of rows that own kernels with tensor cores cannot read; else kSimple
  kSimple,            // any types
  kLibrary,           // cuBLASLt: many rows; where it has no algorithm, the next that fits
  kMma,               // tensor cores, any GPU
  // On Hopper. Tiles of 128 or 192 rows of the weight: deterministic mode, and gates or cut k of some 64 to 128 rows.
  kLargeTile128,
  kLargeTile192,
  kLargeTileSums,     // all parts of k in one block: many rows
  kLargeTileGated,    // with a gate
  kLargeTileSlim,     // clusters of four, tiles of 64 rows; not in deterministic mode
  kLargeTileCluster,  // clusters of four, tiles of 128 rows; not in deterministic mode
  kGateWide,          // gate and up of many rows: a tile has 128 rows of gate
  kGateNarrow,        // 104
  kGateSmall,         // 56
  kSingleWave,        // few rows, a large weight whose tiles are one for each multiprocessor
  kSmemResident,      // few rows, a weight that finds room on the GPU at once
  kRegisterResident,  // few rows, another small weight
  kStreamK,           // up to 64 rows, a large weight of long k
  kSplitKDsmem,       // up to 64 rows, a small weight whose k is cut
  kWgmma,             // everything else
  kApart,             // choose_gated() alone: no kernel has the gate, the product and its activation are two launches
};

struct GemmChoice {
  GemmKernel kernel;
  int split = 1;  // parts of k, of the kernels that can cut it
};

// `library`: whether cuBLASLt may be named; false after it had no algorithm. Deterministic mode keeps to kernels whose
// sums do not depend on how many rows there are.
GemmChoice choose_gemm(const Gemm& g, const GemmFacts& f, bool library = true);
// Of a product with a gate (Gemm::gated). `whole_f32`: the product without its gate would be float32; as bfloat16 it
// would be rounded before the gate, which only kernels of many rows do, too.
GemmChoice choose_gated(const Gemm& g, bool whole_f32, const GemmFacts& f);

// Whether a product goes to cuBLASLt: many rows, where its tiles are best.
bool library_first(const Gemm& g, const GemmFacts& f);

// Norms that the kernels of the products around them do (fusion/norm_fusion.h). Whether the kernel of a product of few
// rows can do the first part of a norm behind it, the second part of one before it.
bool before_norm(const Gemm& g, const GemmFacts& f);
bool behind_norm(const Gemm& g, const GemmFacts& f);
// Columns of which the kernel of such a product leaves a sum of squares; 0: it cannot.
int norm_width(const Gemm& g, const GemmFacts& f);
// Of more rows. Whether a product of cuBLASLt's adds to the residual by itself if a norm behind it reads that.
bool onto_pays(const Gemm& g, const GemmFacts& f);
// Whether one of these is better in two halves of k, which the norm adds up.
bool halves_pay(const Gemm& g, const GemmFacts& f);
// Likewise, of up to 128 rows: how many parts one of our own is left in (Gemm::apart); 1: it is not.
int parts_pay(const Gemm& g, const GemmFacts& f);

}  // namespace tern::cuda
