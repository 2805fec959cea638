// What the attention kernels of all shapes get, and how work is cut. Queries are grouped into units that share a KV
// head; a unit walks over its context in tiles; tiles form segments of kSegment tokens at fixed absolute positions,
// each an online softmax of its own, and segments are joined in ascending order. With few units, segments are dealt out
// over the GPU and joined by a second kernel with the very same arithmetic: how work is cut never changes a bit.
#pragma once

#include <cstdint>

#include "base/error.h"
#include "device/device.h"

namespace tern::cuda {

// What a paged cache holds: values, or codes with their scales behind them (device/kv_layout.h).
enum class KvCode : uint8_t { kNone, kInt8, kE4m3 };

inline constexpr int kSegment = 1024;  // tokens
inline constexpr int64_t kSplitBytes = int64_t{96} << 20;

// The pass between the QKV projection and attention, where attention does it (attention_decode_qkv.cuh): as
// ops::QkvPrepareParams, one token per row.
struct PrepareArgs {
  const float* qkv = nullptr;  // null: it was done before
  int64_t row = 0;             // elements
  const void *q_norm = nullptr, *k_norm = nullptr;
  bool norm_bf16 = false, interleaved = false;
  float eps = 0.0f;
  const float *cos = nullptr, *sin = nullptr;
  int64_t cos_row = 0, sin_row = 0;
  const int64_t* slots = nullptr;
};

struct AttentionArgs {
  const void* q = nullptr;
  int64_t q_token = 0, q_head = 0;  // elements
  bool q_f32 = false;
  void* out = nullptr;
  int64_t out_token = 0, out_head = 0;  // elements
  bool out_f32 = false;
  int heads = 0, kv_heads = 0, dk = 0, dv = 0;
  float scale_log2 = 1.0f;
  const int32_t* row_start = nullptr;    // [rows + 1]
  const int32_t* context_len = nullptr;  // [rows]; null: a row sees itself, all of it (vision)
  int rows = 0;
  // Paged: blocks of kHeadsKV, or of latent rows.
  const char* cache = nullptr;  // null: packed
  int64_t block_stride = 0;     // bytes
  const int32_t* table = nullptr;
  int64_t table_stride = 0;
  int block_size = 0;
  KvCode code = KvCode::kNone;
  int64_t scales = 0;  // bytes from a block to its scales
  // Of codes, null: they have none. Scales by channel, [kv_heads][dk] and [kv_heads][dv], beside those of tokens.
  const float *k_channel = nullptr, *v_channel = nullptr;
  int64_t long_context = 0;  // ops::AttentionParams
  int max_context = 0;
  bool latent = false;  // values are the first dv of a key's row
  // Packed: rows of k and v by token; strides in elements.
  const void *k = nullptr, *v = nullptr;
  int64_t k_token = 0, k_head = 0, v_token = 0, v_head = 0;
  bool kv_f32 = false;     // also of a paged cache, where only the plain kernel takes it
  bool round_bf16 = true;  // plain kernel: inputs of products are rounded to bf16
  // Units: heads of one KV head in `chunks` groups of `chunk_heads`, unit_tokens tokens each.
  int chunks = 1, chunk_heads = 1, unit_tokens = 1;
  // Written by the plan kernel: [0] split, [1] items, [2 + r] first item of row r, [2 + rows] items again,
  // [3 + rows] and [4 + rows] zero: counters of the kernel that deals items out.
  int* plan = nullptr;
  float* slots = nullptr;
  int64_t slot_capacity = 0;
  int split_below = 0;  // units; fewer than this are split
  // Latent attention on Hopper: [0] of the plan is how many tokens a part of a unit has; 0: units are whole. The plan's
  // second half counts units as the first counts items.
  int part_blocks = 0;  // that run at once; 0: segments as above
  bool deterministic_parts =
      false;             // only such parts as leave a query's chain of operations alone (deterministic mode)
  bool planned = false;  // the plan is there: made once for all layers of a step

  // Rows of few queries go to a kernel of their own (attention_decode.cuh) and are left out of the units above. Null:
  // they do not. Heads of one KV head in `decode_chunks` groups of `decode_heads`, decode_tokens tokens each, 16
  // queries at most. Written by the plan kernel: [0] rounds of 256 keys per item, 0: all of them; [1] items, [2 + r]
  // first item of row r. Of ranges: [0] how many there are, [2 + r] where row r begins; they lie behind kDecodeRanges +
  // 1 counters.
  int* decode_plan = nullptr;
  int* decode_counters = nullptr;  // parts of a unit that are done; by the unit's first item; 0 between kernels
  bool decode_all = false;         // every row goes there (deterministic mode)
  int decode_chunks = 1, decode_heads = 1, decode_tokens = 1;
  int decode_capacity = 0;  // items that may leave a state in `slots`
  int decode_blocks = 0;    // that run at once
  // On Hopper instead of items (attention_decode_tma.cuh): ranges of tiles, one per block, of which each may leave
  // decode_capacity states; 0: items. decode_deterministic: how they are cut must not change a bit. decode_group: heads
  // of one KV head. decode_wide: units have up to 16 queries, not 8.
  int decode_ranges = 0, decode_group = 1;
  bool decode_wide = false, decode_deterministic = true;
  // A cluster of so many blocks has an item each (attention_decode_cluster.cuh), decode_ranges of them at once; 0:
  // ranges.
  int decode_cluster = 0;
  // So few clusters that each of their blocks has a multiprocessor, and room for all that it has to load.
  bool decode_deep = false;
  // Such a cluster keeps to the order of ranges (attention_decode_cluster_deterministic.cuh, deterministic mode): each
  // of its blocks leaves so many states at most; decode_ranges counts blocks, decode_plan[1] says whether the step has
  // ranges after all.
  int decode_nodes = 0;
  // The plan and keys of earlier steps may be read before wait_for_previous(). plan_kernel lets nothing start before it
  // has waited and its plan is written, so whatever starts behind it finds both, however many kernels are still under
  // way; and behind attention_plan() a step writes only its own places of the cache.
  bool decode_early = false;
  PrepareArgs prepare;
};

inline constexpr int kDecodeCounters = 16384;
inline constexpr int kDecodeTile = 64;      // keys, on Hopper
inline constexpr int kDecodeRanges = 1023;  // at most
constexpr int64_t plan_words(int64_t rows) { return (rows + 5 + 63) / 64 * 64; }
// Both plans and the counters.
inline int64_t plan_bytes(int64_t rows) { return (2 * plan_words(rows) + kDecodeCounters) * 4; }

// One per container of head sizes; each sets units and launches plan, attention and join.
Status attention_64(AttentionArgs a, int max_query_len, device::Stream stream);
Status attention_128(AttentionArgs a, int max_query_len, device::Stream stream);
Status attention_256(AttentionArgs a, int max_query_len, device::Stream stream);
Status attention_latent(AttentionArgs a, int max_query_len, device::Stream stream);
// Units of the kernels above: kM queries each.
AttentionArgs mma_units(AttentionArgs a, int queries, device::Stream stream);
// Any type and any size: a warp per query.
Status attention_plain(const AttentionArgs& a, int64_t tokens, device::Stream stream);
Status launch_plan(const AttentionArgs& a, device::Stream stream);

// Codes of `heads` KV heads from `first` on as bfloat16 pages (widened.h), of rows of many queries, which `a` then is
// about.
Status widen_pages(AttentionArgs& a, int first, int heads, device::Stream stream);

}  // namespace tern::cuda
