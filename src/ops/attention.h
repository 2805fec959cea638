// Attention over the paged cache: prefill chunks and decode rows alike, causal by absolute position.
#pragma once

#include "base/error.h"
#include "device/device.h"
#include "device/kv_layout.h"
#include "device/tensor.h"

namespace tern::ops {

// How the attention of one step is cut up: the same for all of its layers, made once from the lengths. On a GPU the
// device does it, so that a captured step serves every context; on a CPU there is nothing to do. Between
// attention_plan() and the attention of the last layer nothing may write the cache but the places of this step's
// tokens: earlier ones may be read as soon as the plan is there.
struct AttentionPlan {
  void* memory = nullptr;  // attention_plan_bytes() bytes that stay as they are until the last layer is done
  uint64_t shape = 0;      // what it was made for; set by attention_plan()
};
struct AttentionPlanParams {
  KvSpec spec;  // of the cache
  int heads = 0, tokens = 0;
  TensorView row_start;    // [R + 1] int32
  TensorView context_len;  // [R] int32
  int max_query_len = 0;
  AttentionPlan* plan = nullptr;
  int64_t long_context = 0;  // as in AttentionParams
};
Status attention_plan(const AttentionPlanParams& params, device::Stream stream);
size_t attention_plan_bytes(device::Stream stream, int max_rows);

// Row r holds the queries of tokens [row_start[r], row_start[r+1]); they are the last ones of a context of
// context_len[r] tokens (this step's included, already in the cache). KV is reduced in fixed blocks by absolute
// position, so that a token's result does not depend on the chunk, the batch or a prefix hit.
struct AttentionParams {
  TensorView q;            // [T, heads, D]
  KvLayerView cache;       // of this layer
  TensorView block_table;  // [R, max_blocks] int32
  TensorView row_start;    // [R + 1] int32
  TensorView context_len;  // [R] int32
  TensorView out;          // [T, heads * head_dim_v]
  float scale = 1.0f;
  int max_query_len = 0;  // longest row of this step (host knows it)
  int max_context_len = 0;
  void* workspace = nullptr;  // attention_workspace() bytes
  AttentionPlan plan;         // of this step; one that does not fit, or none: made here
  // Sum of the contexts of rows of more than one query, or 0: not known. A device may use it to make room for keys of a
  // quantized cache in a form that prompts read faster.
  int64_t long_context = 0;
};
Status attention(const AttentionParams& params, device::Stream stream);
size_t attention_workspace(device::Stream stream, int max_tokens, int heads, int head_dim);

// Multi-head latent attention in absorbed form (models-other.md 7.3): all heads share one cached row of
// kv_lora_rank + rope_dim values; scores use the whole row, values are its first kv_lora_rank entries.
struct MlaAttentionParams {
  TensorView q;            // [T, heads, kv_lora_rank + rope_dim]: latent part then rotated rope part
  KvLayerView cache;       // kMlaRows
  TensorView block_table;  // [R, max_blocks] int32
  TensorView row_start;    // [R + 1] int32
  TensorView context_len;  // [R] int32
  TensorView out;          // [T, heads, kv_lora_rank]
  int kv_lora_rank = 0;
  float scale = 1.0f;
  int max_query_len = 0, max_context_len = 0;
  void* workspace = nullptr;  // attention_workspace(stream, max_tokens, heads, row width)
  AttentionPlan plan;
};
Status mla_attention(const MlaAttentionParams& params, device::Stream stream);

}  // namespace tern::ops
