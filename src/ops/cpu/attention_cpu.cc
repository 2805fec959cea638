#include "ops/cpu/attention_cpu.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/checked.h"
#include "kernels/cpu/isa.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/op_check.h"

namespace tern::ops::cpu {
namespace {

constexpr float kLog2E = 1.44269504088896340736f;

// Null when the tables that both forms share are sound.
const char* check_rows(const TensorView& q, const TensorView& table, const TensorView& row_start,
                       const TensorView& context_len, int64_t block_size) {
  const int64_t rows = context_len.dim[0];
  if (!is_act(q.dtype) || q.rank != 3 || !is_rows(q)) return "q must be [T, heads, D] of float32 or bfloat16";
  if (!is_vector(context_len, DType::kI32, rows)) return "context_len must be [R] int32";
  if (!is_vector(row_start, DType::kI32, rows + 1)) return "row_start must be [R + 1] int32";
  if (rows == 0) return nullptr;
  if (table.dtype != DType::kI32 || table.rank != 2 || !is_rows(table) || table.dim[0] != rows) {
    return "block_table must be [R, max_blocks] int32";
  }
  const auto *start = row_start.as<const int32_t>(), *context = context_len.as<const int32_t>();
  if (start[0] < 0 || start[rows] > q.dim[0]) return "row_start reaches beyond q";
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t n = int64_t{start[r + 1]} - start[r];
    if (n < 0) return "row_start must ascend";
    if (context[r] < 0 || (context[r] > 0 && context[r] < n)) return "a context is shorter than its queries";
    const int64_t blocks = n == 0 ? 0 : ceil_div<int64_t>(context[r], block_size);
    if (blocks > table.dim[1]) return "a context is longer than its block table";
    const auto* ids = reinterpret_cast<const int32_t*>(table.row_bytes(r));
    for (int64_t b = 0; b < blocks; ++b) {
      if (ids[b] < 0) return "a block number is negative";
    }
  }
  return nullptr;
}

// Padding rows have queries but no context: their output is zero.
void clear_empty_rows(const AttentionJob& j) {
  const size_t bytes = static_cast<size_t>(j.dv) * dtype_bytes(j.out_type);
  for (int64_t r = 0; r < j.rows; ++r) {
    if (j.context_len[r] > 0) continue;
    for (int64_t t = j.row_start[r]; t < j.row_start[r + 1]; ++t) {
      for (int64_t h = 0; h < j.heads; ++h) {
        std::memset(j.out + (t * j.out_token + h * j.out_head) * static_cast<int64_t>(dtype_bytes(j.out_type)), 0,
                    bytes);
      }
    }
  }
}

// Walks over the units of all sequences in order; indices only grow.
class UnitCursor {
 public:
  explicit UnitCursor(const AttentionJob& job) : job_(job) {}
  AttentionUnit at(int64_t index) {
    while (index - base_ >= count()) {
      base_ += count();
      ++sequence_;
    }
    return make_unit(job_, sequence_, index - base_);
  }

 private:
  int64_t count() const { return job_.context_len[sequence_] > 0 ? job_.units(sequence_) : 0; }
  const AttentionJob& job_;
  int64_t sequence_ = 0, base_ = 0;
};

int64_t segments_of(const AttentionJob& j, const AttentionUnit& u) { return ceil_div(u.visible(), j.segment_tokens()); }

// Many units: a thread takes a unit and walks through all its segments.
void run_units(const AttentionJob& j, const AttentionWorkspace& space, int64_t units, device::Stream stream) {
  std::atomic<int64_t> next{0};
  for_parts(stream, static_cast<int>(std::min<int64_t>(units, thread_count(stream))), [&](int thread) {
    const AttentionScratch s = space.thread(thread);
    UnitCursor cursor(j);
    for (int64_t i = next.fetch_add(1); i < units; i = next.fetch_add(1)) {
      const AttentionUnit u = cursor.at(i);
      load_queries(j, u, s);
      run_segment(j, u, 0, s, s.total);
      for (int64_t g = 1; g < segments_of(j, u); ++g) {
        run_segment(j, u, g, s, s.segment);
        merge_state(j, u, s.segment, s.total);
      }
      store_unit(j, u, s.total);
    }
  });
}

// Few units: waves of segments of all units are dealt to the threads, then joined in ascending order.
void run_split(const AttentionJob& j, const AttentionWorkspace& space, int64_t units, int64_t most_segments,
               device::Stream stream) {
  const int64_t threads = thread_count(stream);
  const int64_t wave = std::max<int64_t>(1, kSlotsPerThread * threads / units);
  auto total = [&](int64_t unit) { return space.slot(kSlotsPerThread * threads + unit); };
  for (int64_t g0 = 0; g0 < most_segments; g0 += wave) {
    const int64_t count = std::min(wave, most_segments - g0);
    std::atomic<int64_t> next{0};
    const int64_t tasks = units * count;
    for_parts(stream, static_cast<int>(std::min(tasks, threads)), [&](int thread) {
      const AttentionScratch s = space.thread(thread);
      UnitCursor cursor(j);
      for (int64_t i = next.fetch_add(1); i < tasks; i = next.fetch_add(1)) {
        const int64_t unit = i / count, g = g0 + i % count;
        const AttentionUnit u = cursor.at(unit);
        if (g >= segments_of(j, u)) continue;
        load_queries(j, u, s);
        run_segment(j, u, g, s, g == 0 ? total(unit) : space.slot(unit * wave + i % count));
      }
    });
    for_parts(stream, static_cast<int>(units), [&](int unit) {
      UnitCursor cursor(j);
      const AttentionUnit u = cursor.at(unit);
      const int64_t last = std::min(g0 + count, segments_of(j, u));
      for (int64_t g = std::max<int64_t>(g0, 1); g < last; ++g) {
        merge_state(j, u, space.slot(unit * wave + g - g0), total(unit));
      }
      if (last == segments_of(j, u) && g0 < last) store_unit(j, u, total(unit));
    });
  }
}

void run(const AttentionJob& j, void* workspace, device::Stream stream) {
  clear_empty_rows(j);
  int64_t units = 0, context = 0;
  for (int64_t r = 0; r < j.rows; ++r) {
    if (j.context_len[r] == 0 || j.row_start[r] == j.row_start[r + 1]) continue;
    units += j.units(r);
    context = std::max<int64_t>(context, j.context_len[r]);
  }
  if (units == 0) return;
  const AttentionWorkspace space(workspace, thread_count(stream), j.dk, j.dv);
  const int64_t segments = ceil_div(context, j.segment_tokens());
  if (thread_count(stream) > 1 && units < kSplitPerThread * thread_count(stream) && segments > 1) {
    run_split(j, space, units, segments, stream);
  } else {
    run_units(j, space, units, stream);
  }
}

AttentionJob common_job(const TensorView& q, const KvLayerView& cache, const TensorView& table,
                        const TensorView& row_start, const TensorView& context_len, float scale) {
  AttentionJob j;
  j.kernels = &kernels::kernel_table();
  j.q = q;
  j.cache = cache;
  j.heads = q.dim[1], j.dk = q.dim[2];
  j.table = table.as<const int32_t>(), j.table_stride = table.stride[0];
  j.row_start = row_start.as<const int32_t>(), j.context_len = context_len.as<const int32_t>();
  j.rows = context_len.dim[0];
  j.scale_log2 = scale * kLog2E;
  j.dot = q.dtype == DType::kBF16 && cache.spec.dtype != DType::kF32 && j.kernels->gemm_bf16 != nullptr;
  return j;
}

}  // namespace

Status attention(const AttentionParams& p, device::Stream stream) {
  constexpr const char* kOp = "attention";
  const KvSpec& s = p.cache.spec;
  const bool type_fits = is_act(s.dtype) || (s.quantized() && s.head_dim_k % 16 == 0 && s.head_dim_v % 16 == 0);
  TERN_OP_CHECK(kOp,
                s.arrangement == KvArrangement::kCpuPacked && type_fits && s.kv_heads >= 1 && s.head_dim_k >= 8 &&
                    s.head_dim_k % 8 == 0 && s.head_dim_v >= 8 && s.head_dim_v % 8 == 0 && s.block_size >= 16 &&
                    s.block_size % 16 == 0 && p.cache.block_stride >= s.layer_block_bytes(),
                "the cache must be kCpuPacked with head sizes that are multiples of 8 and blocks of 16");
  const char* wrong = check_rows(p.q, p.block_table, p.row_start, p.context_len, s.block_size);
  TERN_OP_CHECK(kOp, wrong == nullptr, wrong);
  TERN_OP_CHECK(kOp, p.q.dim[2] == s.head_dim_k && p.q.dim[1] % s.kv_heads == 0, "the heads do not fit the cache");
  TERN_OP_CHECK(kOp, is_act(p.out.dtype) && is_matrix(p.out, p.q.dim[0], p.q.dim[1] * s.head_dim_v),
                "out must be [T, heads * head_dim_v]");
  TERN_OP_CHECK(kOp, p.workspace != nullptr && (p.cache.base != nullptr || p.q.dim[0] == 0), "memory is missing");
  AttentionJob j = common_job(p.q, p.cache, p.block_table, p.row_start, p.context_len, p.scale);
  j.kv_heads = s.kv_heads, j.dv = s.head_dim_v;
  j.out = static_cast<char*>(p.out.data), j.out_type = p.out.dtype;
  j.out_token = p.out.stride[0], j.out_head = s.head_dim_v;
  run(j, p.workspace, stream);
  return {};
}

Status mla_attention(const MlaAttentionParams& p, device::Stream stream) {
  constexpr const char* kOp = "mla_attention";
  const KvSpec& s = p.cache.spec;
  TERN_OP_CHECK(kOp,
                s.arrangement == KvArrangement::kMlaRows && is_act(s.dtype) && s.block_size >= 1 &&
                    p.cache.block_stride >= s.layer_block_bytes(),
                "the cache must be kMlaRows");
  const char* wrong = check_rows(p.q, p.block_table, p.row_start, p.context_len, s.block_size);
  TERN_OP_CHECK(kOp, wrong == nullptr, wrong);
  TERN_OP_CHECK(kOp, p.q.dim[2] == s.head_dim_k && p.kv_lora_rank >= 1 && p.kv_lora_rank <= s.head_dim_k,
                "the row width does not fit the cache");
  TERN_OP_CHECK(kOp,
                is_act(p.out.dtype) && p.out.rank == 3 && is_rows(p.out) && p.out.dim[0] == p.q.dim[0] &&
                    p.out.dim[1] == p.q.dim[1] && p.out.dim[2] == p.kv_lora_rank,
                "out must be [T, heads, kv_lora_rank]");
  TERN_OP_CHECK(kOp, p.workspace != nullptr && (p.cache.base != nullptr || p.q.dim[0] == 0), "memory is missing");
  AttentionJob j = common_job(p.q, p.cache, p.block_table, p.row_start, p.context_len, p.scale);
  j.latent = true;
  j.kv_heads = 1, j.dv = p.kv_lora_rank;
  j.out = static_cast<char*>(p.out.data), j.out_type = p.out.dtype;
  j.out_token = p.out.stride[0], j.out_head = p.out.stride[1];
  run(j, p.workspace, stream);
  return {};
}

size_t attention_workspace(device::Stream stream, int max_tokens, int heads, int head_dim) {
  if (max_tokens <= 0 || heads <= 0 || head_dim <= 0) return 0;
  return AttentionWorkspace(nullptr, thread_count(stream), head_dim, head_dim).bytes();
}

}  // namespace tern::ops::cpu
