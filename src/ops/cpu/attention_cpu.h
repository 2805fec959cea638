// Attention on a CPU, inner side. Queries are grouped into units of up to 48 rows that share a KV head; a unit walks
// over the context in segments of fixed absolute position, each an online softmax over tiles of at most 64 tokens;
// segments are joined in ascending order. Every row has its own chain of operations, fixed by its position alone.
#pragma once

#include <cstdint>

#include "kernels/cpu/kernel_table.h"
#include "ops/attention.h"

namespace tern::ops::cpu {

inline constexpr int64_t kUnitRows = 48;
inline constexpr int64_t kTile = 64;            // tokens
inline constexpr int64_t kSegmentTokens = 512;  // rounded down to whole blocks, at least one
inline constexpr int64_t kSlotsPerThread = 8;   // segments in flight when a few units share the threads
inline constexpr int64_t kSplitPerThread = 4;   // fewer units than this per thread: segments are dealt out

// What the plain and the latent form have in common.
struct AttentionJob {
  const kernels::KernelTable* kernels = nullptr;
  TensorView q;                         // [T, heads, dk]
  char* out = nullptr;                  // [T, heads, dv]
  int64_t out_token = 0, out_head = 0;  // strides in elements
  DType out_type = DType::kF32;
  KvLayerView cache;
  bool latent = false;  // kMlaRows
  int64_t heads = 0, kv_heads = 0, dk = 0, dv = 0;
  const int32_t* table = nullptr;
  int64_t table_stride = 0;
  const int32_t *row_start = nullptr, *context_len = nullptr;
  int64_t rows = 0;  // sequences
  float scale_log2 = 1.0f;
  bool dot = false;  // queries and probabilities as bf16 through gemm_bf16

  int64_t group() const { return heads / kv_heads; }
  int64_t head_chunks() const { return (group() + kUnitRows - 1) / kUnitRows; }
  int64_t chunk_heads() const { return (group() + head_chunks() - 1) / head_chunks(); }
  int64_t block_tokens() const { return cache.spec.block_size; }
  int64_t segment_tokens() const {
    const int64_t blocks = kSegmentTokens / block_tokens();
    return (blocks > 0 ? blocks : 1) * block_tokens();
  }
  int64_t unit_tokens() const { return kUnitRows / chunk_heads(); }
  // Units of sequence r: KV heads x head chunks x query blocks.
  int64_t units(int64_t r) const {
    const int64_t n = row_start[r + 1] - row_start[r];
    return kv_heads * head_chunks() * ((n + unit_tokens() - 1) / unit_tokens());
  }
};

// Consecutive tokens of one sequence and heads of one group; row i is token i / heads, head i % heads.
struct AttentionUnit {
  int64_t sequence = 0, kv_head = 0;
  int64_t token0 = 0, tokens = 0;  // in q
  int64_t head0 = 0, heads = 0;
  int64_t position0 = 0;  // absolute, of token0
  int64_t rows() const { return tokens * heads; }
  int64_t visible() const { return position0 + tokens; }  // keys that the last token sees
};
AttentionUnit make_unit(const AttentionJob& job, int64_t sequence, int64_t index);

// State of an online softmax over some KV range.
struct SoftmaxState {
  float *m = nullptr, *l = nullptr, *acc = nullptr;  // [kUnitRows], [kUnitRows], [kUnitRows, dv padded to 16]
};

// Memory of one thread and of the states shared between threads, cut out of the caller's workspace.
struct AttentionScratch {
  char* q = nullptr;       // [kUnitRows, dk padded to 2] f32 or bf16
  float* s = nullptr;      // [kUnitRows, kTile]; before the first tile: a row of queries
  char* p = nullptr;       // [kUnitRows, kTile] f32 or bf16
  char* k_tile = nullptr;  // latent rows and codes only
  char* v_tile = nullptr;  // likewise; else one pair of tokens
  int32_t* valid = nullptr;
  SoftmaxState segment, total;
};
class AttentionWorkspace {
 public:
  AttentionWorkspace(void* memory, int64_t threads, int64_t dk, int64_t dv);
  size_t bytes() const { return static_cast<size_t>(shared_ + slots_ * state_); }
  AttentionScratch thread(int64_t t) const;
  SoftmaxState slot(int64_t i) const { return state_at(base_ + shared_ + i * state_); }
  int64_t slots() const { return slots_; }

 private:
  SoftmaxState state_at(char* p) const;
  char* base_;
  int64_t dk_, dv_, slots_, state_, per_thread_, shared_;
};

inline int64_t padded_dv(int64_t dv) { return (dv + 15) / 16 * 16; }

void load_queries(const AttentionJob& job, const AttentionUnit& unit, const AttentionScratch& s);
// Attention of the unit to the keys of one segment; queries are loaded.
void run_segment(const AttentionJob& job, const AttentionUnit& unit, int64_t segment, const AttentionScratch& s,
                 const SoftmaxState& state);
void merge_state(const AttentionJob& job, const AttentionUnit& unit, const SoftmaxState& later,
                 const SoftmaxState& total);
void store_unit(const AttentionJob& job, const AttentionUnit& unit, const SoftmaxState& total);

}  // namespace tern::ops::cpu
