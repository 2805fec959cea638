// Which kernel takes a product. Everything depends on the product's shape and types, the mode and the device alone.
#pragma once

#include "cuda/gemm/gemm.h"

namespace tern::cuda {

enum class GemmKernel {
  kMixed,             // bf16 rows with a float32 weight of few columns (routers)
  kGemv,              // up to four rows on GPUs before Hopper
  kLibraryUnaligned,  // cuBLASLt, of rows that own kernels with tensor cores cannot read; else kSimple
  kSimple,            // any types
  kLibrary,           // cuBLASLt: many rows; where it has no algorithm, the next that fits
  kMma,               // tensor cores, any GPU
  kLargeTile,         // deterministic mode, and gates or cut k of some 64 to 128 rows
  kSingleWave,        // few rows, a large weight whose tiles are one for each multiprocessor
  kRegisterResident,  // few rows, a small weight
  kStreamK,           // up to 64 rows, a large weight of long k
  kWgmma,             // everything else on Hopper
};

// `library`: whether cuBLASLt may be named; false after it had no algorithm.
GemmKernel choose_gemm(const Gemm& g, device::Stream stream, bool library = true);

// Hopper's own kernels, unless the options hold the device to what smaller GPUs have.
bool has_hopper_kernels(device::Stream stream);
// Whether the kernels of deterministic mode are the fastest outside of it, too.
bool large_tile_first(const Gemm& g, device::Stream stream);
// Whether a product goes to cuBLASLt: many rows, where its tiles are best.
bool library_first(const Gemm& g, device::Stream stream);
// Whether the kernel of a product of few rows can do the first part of a norm behind it, the second part of one before.
bool before_norm(const Gemm& g, device::Stream stream);
bool behind_norm(const Gemm& g, device::Stream stream);

}  // namespace tern::cuda
