// Which kernels take an attention call: pure functions of its shape and types, the mode and the device (README.md,
// "Which kernel takes an attention call"; cases in tests/choice/attention_test.cc). attention.cc only calls them.
// Whoever adds a kernel or a format of the cache adds a value here, its condition, its launch in attention.cc and
// cases.
#pragma once

#include "cuda/attention/attention_args.h"
#include "cuda/runtime/device_facts.h"

namespace tern::cuda {

// Of rows that no decode kernel takes.
enum class AttentionKernel : uint8_t {
  kNone,   // there are none
  kPlain,  // any types and sizes: a warp per query
  // Tensor cores of any GPU: heads of up to so many values, latent rows.
  kMma64,
  kMma128,
  kMma256,
  kMmaLatent,
  // Hopper.
  kPrefill64,       // prompt chunks over pages of the cache
  kPrefill128,      //
  kPrefillWidened,  // the same over bfloat16 pages made of a cache's codes (widened.h)
  kLatent,          // latent rows of 512 + 64 values: all rows of a step
  kSegments,        // packed rows: pictures of a tower
};

// Of rows with few queries, up to 16 of one KV head; in deterministic mode of all rows.
enum class DecodeKernel : uint8_t {
  kNone,
  kPortable,  // tensor cores of any GPU
  // Hopper: blocks with ranges of all tiles of the step; a cluster of blocks for each unit while the GPU has room.
  kRanges,
  kRangesDeterministic,
  kCluster,
  kClusterDeterministic,
};

// Units of decoding rows: heads of one KV head in `chunks` groups of `heads`, `tokens` tokens each.
struct DecodeUnits {
  int chunks = 1, heads = 1, tokens = 1;
  bool wide = false;  // on Hopper: up to 16 queries, not 8
};

struct AttentionChoice {
  AttentionKernel kernel = AttentionKernel::kNone;
  DecodeKernel decode = DecodeKernel::kNone;
  DecodeUnits units;  // of `decode`
  // Of decode kernels with clusters: the logarithm of the blocks of one, how many run at once, and whether each block
  // has a multiprocessor.
  int cluster_bits = 0, clusters = 0;
  bool deep = false;
};

// Clusters of the mode's decode kernel that run at once on a stream, by the logarithm of their blocks; only the driver
// knows. deep: of eight blocks that have a multiprocessor each.
struct DecodeClusters {
  int at_once[4] = {};
  int deep = 0;
};
struct AttentionFacts : DeviceFacts {
  DecodeClusters clusters;  // of the call's heads, where Hopper's decode kernels take them
};

// Over a paged cache. `max_query_len`: the longest row's.
AttentionChoice choose_attention(const AttentionArgs& a, int max_query_len, const AttentionFacts& f);
// Of packed rows: `aligned` and `rotated`: whether q, k and v can be read 16 bytes at a time; whether the kernels that
// lay rows apart or turn them (rotate_fits()) take these.
AttentionKernel choose_segments(const AttentionArgs& a, int64_t tokens, bool aligned, bool rotated,
                                const DeviceFacts& f);

// Whether Hopper's decode kernels take the rows of few queries; else kPortable does, if any.
bool decode_sm90_fits(const AttentionArgs& a, const DeviceFacts& f);
DecodeUnits decode_units(const AttentionArgs& a, int max_query_len, bool sm90);

// What the kernels of Hopper share with these conditions. Shared memory of a block: of prompts and segments, of
// decoding and latent rows.
inline constexpr int kPrefillShared = 200 * 1024, kDecodeShared = 224 * 1024;
inline constexpr int kPrefillQueries = 128;  // of a unit of kPrefill128 and of kSegments
inline constexpr int kPage = 64;             // tokens that the copy engine brings at a time
inline constexpr int kLatentWidth = 576, kLatentValues = 512, kLatentKeys = 64;
inline constexpr int kMostClusterBits = 3, kMostCluster = 1 << kMostClusterBits;  // blocks

}  // namespace tern::cuda
