// The ops of one kind of device as a table of functions. The CPU's is built in; another back-end fills its own (from a
// shared object loaded at run time) and registers it before the first op. A null entry means that the op is not there.
#pragma once

#include <cstdint>

#include "base/error.h"
#include "device/device.h"
#include "ops/activation.h"
#include "ops/attention.h"
#include "ops/embedding.h"
#include "ops/linear.h"
#include "ops/moe.h"
#include "ops/norm.h"
#include "ops/rope.h"
#include "ops/tape.h"
#include "ops/vision.h"

namespace tern::ops {

template <class P>
using OpFunction = Status (*)(const P&, device::Stream);

// Grows at the end only: a back-end built against an older one leaves the new entries null.
struct Backend {
  uint32_t version = 1;
  OpFunction<RmsNormParams> rms_norm = nullptr;
  OpFunction<AddParams> add = nullptr;
  OpFunction<SiluMulParams> silu_mul = nullptr;
  OpFunction<EmbeddingParams> embedding = nullptr;
  OpFunction<ResolveIdsParams> resolve_ids = nullptr;
  OpFunction<GatherRowsParams> gather_rows = nullptr;
  OpFunction<RopeTableParams> rope_table = nullptr;
  OpFunction<RopeParams> rope = nullptr;
  OpFunction<QkvPrepareParams> qkv_prepare = nullptr;
  OpFunction<MlaCacheWriteParams> mla_cache_write = nullptr;
  OpFunction<AttentionParams> attention = nullptr;
  OpFunction<MlaAttentionParams> mla_attention = nullptr;
  size_t (*attention_workspace)(device::Stream, int max_tokens, int heads, int head_dim) = nullptr;
  OpFunction<MoeRouteParams> moe_route = nullptr;
  OpFunction<MoePermuteParams> moe_permute = nullptr;
  OpFunction<MoeCombineParams> moe_combine = nullptr;
  const WeightFormat* (*find_weight_format)(const char* name) = nullptr;
  // The name of the kernels in use ("avx512bf16", "sm_90a"), for tests and logs.
  const char* (*kernels)() = nullptr;
  OpFunction<LayerNormParams> layer_norm = nullptr;
  OpFunction<ActivateParams> activate = nullptr;
  OpFunction<SegmentAttentionParams> segment_attention = nullptr;
  size_t (*segment_attention_workspace)(device::Stream, int64_t max_rows, int64_t max_segments, int heads,
                                        int head_dim) = nullptr;
  OpFunction<TakeRowsParams> take_rows = nullptr;
  OpFunction<ScatterRowsParams> scatter_rows = nullptr;
  OpFunction<InterpolateRowsParams> interpolate_rows = nullptr;
  // Null: there is nothing to plan.
  OpFunction<AttentionPlanParams> attention_plan = nullptr;
  size_t (*attention_plan_bytes)(device::Stream, int max_rows) = nullptr;
  // Null: one after the other.
  OpFunction<MoeDispatchParams> moe_dispatch = nullptr;
  OpFunction<MoeCombineNormParams> moe_combine_norm = nullptr;
  // Null: float32.
  DType (*product_type)(device::Stream, int64_t rows) = nullptr;
  // Null: nothing is put off.
  void (*open_tape)(device::Stream, int64_t rows, bool always) = nullptr;
  Status (*close_tape)(device::Stream) = nullptr;
};

// Null when no back-end of that kind is registered.
const Backend* find_backend(device::DeviceKind kind);
// `backend` must outlive every op. Before the first op on that kind of device.
void register_backend(device::DeviceKind kind, const Backend* backend);
const Backend& cpu_backend();

}  // namespace tern::ops
