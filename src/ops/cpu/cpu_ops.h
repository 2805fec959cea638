// The CPU's functions behind ops/backend.h, by file. Work is cut by rows or columns; results never depend on the cut.
#pragma once

#include "device/compute_pool.h"
#include "ops/backend.h"

namespace tern::ops::cpu {

Status rms_norm(const RmsNormParams&, device::Stream);
Status add(const AddParams&, device::Stream);
Status silu_mul(const SiluMulParams&, device::Stream);
Status embedding(const EmbeddingParams&, device::Stream);
Status resolve_ids(const ResolveIdsParams&, device::Stream);
Status gather_rows(const GatherRowsParams&, device::Stream);
Status rope_table(const RopeTableParams&, device::Stream);
Status rope(const RopeParams&, device::Stream);
Status qkv_prepare(const QkvPrepareParams&, device::Stream);
Status mla_cache_write(const MlaCacheWriteParams&, device::Stream);
Status attention(const AttentionParams&, device::Stream);
Status mla_attention(const MlaAttentionParams&, device::Stream);
size_t attention_workspace(device::Stream, int max_tokens, int heads, int head_dim);
Status moe_route(const MoeRouteParams&, device::Stream);
Status moe_permute(const MoePermuteParams&, device::Stream);
Status moe_combine(const MoeCombineParams&, device::Stream);
const WeightFormat* find_weight_format(const char* name);
Status layer_norm(const LayerNormParams&, device::Stream);
Status activate(const ActivateParams&, device::Stream);
Status segment_attention(const SegmentAttentionParams&, device::Stream);
size_t segment_attention_workspace(device::Stream, int64_t max_rows, int64_t max_segments, int heads, int head_dim);
Status take_rows(const TakeRowsParams&, device::Stream);
Status scatter_rows(const ScatterRowsParams&, device::Stream);
Status interpolate_rows(const InterpolateRowsParams&, device::Stream);

inline int thread_count(device::Stream s) { return s.pool == nullptr ? 1 : s.pool->threads(); }

// f(part) for part in [0, parts); in the calling thread when the stream has no pool.
template <class F>
void for_parts(device::Stream s, int parts, F&& f) {
  if (s.pool != nullptr) {
    s.pool->parallel(parts, f);
  } else {
    for (int p = 0; p < parts; ++p) f(p);
  }
}
template <class F>
void for_parts_dynamic(device::Stream s, int parts, F&& f) {
  if (s.pool != nullptr) {
    s.pool->parallel_dynamic(parts, f);
  } else {
    for (int p = 0; p < parts; ++p) f(p);
  }
}

// f(begin, end) over [0, n) cut into contiguous ranges of at least `grain`, a few per thread; small work stays in the
// calling thread, because waking another costs more.
template <class F>
void for_ranges(device::Stream s, int64_t n, int64_t grain, F&& f) {
  if (n <= 0) return;
  const int64_t most = (n + grain - 1) / grain, few = 4 * thread_count(s);
  const int64_t parts = thread_count(s) == 1 ? 1 : most < few ? most : few;
  for_parts(s, static_cast<int>(parts), [&](int p) { f(n * p / parts, n * (p + 1) / parts); });
}

// Rows worth handing to another thread when a row has `elements` values of light work.
inline int64_t row_grain(int64_t elements) { return elements >= 16384 ? 1 : 1 + 16384 / (elements > 0 ? elements : 1); }

}  // namespace tern::ops::cpu
