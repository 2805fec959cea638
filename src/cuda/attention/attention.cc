// Checks of the attention ops; launches what choice.h says.
#include <algorithm>

#include "cuda/attention/attention_prefill.h"
#include "cuda/attention/widened.h"
#include "cuda/runtime/cuda_ops.h"
#include "cuda/runtime/deferred.h"
#include "device/device_cuda.h"
#include "ops/op_check.h"

namespace tern::cuda {
namespace {

constexpr float kLog2E = 1.44269504088896340736f;

// Null when the tables that both forms share have the right shapes. What they hold is known to the device only.
const char* check_rows(const TensorView& q, const TensorView& table, const TensorView& row_start,
                       const TensorView& context_len) {
  const int64_t rows = context_len.dim[0];
  if (!ops::is_act(q.dtype) || q.rank != 3 || !ops::is_rows(q)) return "q must be [T, heads, D] of float32 or bfloat16";
  if (!ops::is_vector(context_len, DType::kI32, rows)) return "context_len must be [R] int32";
  if (!ops::is_vector(row_start, DType::kI32, rows + 1)) return "row_start must be [R + 1] int32";
  if (rows > 0 && (table.dtype != DType::kI32 || table.rank != 2 || !ops::is_rows(table) || table.dim[0] != rows)) {
    return "block_table must be [R, max_blocks] int32";
  }
  return nullptr;
}

KvCode code_of(const KvSpec& s) {
  return s.dtype == DType::kI8 ? KvCode::kInt8 : s.dtype == DType::kF8E4M3 ? KvCode::kE4m3 : KvCode::kNone;
}

// Whether heads are of a size that a cache of this type can have.
bool heads_fit(const KvSpec& s) {
  if (!s.quantized()) return ops::is_act(s.dtype);
  return s.head_dim_k % 16 == 0 && s.head_dim_v % 16 == 0 && s.block_size % 16 == 0;
}

AttentionArgs paged(const TensorView& q, const KvLayerView& cache, const TensorView& table, const TensorView& row_start,
                    const TensorView& context_len, float scale, void* workspace) {
  AttentionArgs a;
  a.q = q.data, a.q_token = q.stride[0], a.q_head = q.stride[1], a.q_f32 = q.dtype == DType::kF32;
  a.heads = static_cast<int>(q.dim[1]), a.dk = static_cast<int>(q.dim[2]);
  a.scale_log2 = scale * kLog2E;
  a.row_start = row_start.as<const int32_t>(), a.context_len = context_len.as<const int32_t>();
  a.rows = static_cast<int>(context_len.dim[0]);
  a.cache = cache.base, a.block_stride = static_cast<int64_t>(cache.block_stride);
  a.table = table.as<const int32_t>(), a.table_stride = table.stride[0];
  a.block_size = cache.spec.block_size;
  a.kv_f32 = cache.spec.dtype == DType::kF32;
  a.code = code_of(cache.spec), a.scales = static_cast<int64_t>(cache.spec.scales_offset());
  if (cache.scales.channels) a.k_channel = cache.scales.k, a.v_channel = cache.scales.v;
  a.round_bf16 = !a.kv_f32;
  a.plan = static_cast<int*>(workspace);
  a.slots = reinterpret_cast<float*>(static_cast<char*>(workspace) + plan_bytes(a.rows));
  return a;
}

// Whether rows of n values starting at `data` with these strides (elements) can be read 16 bytes at a time.
bool aligned(const void* data, DType t, int64_t s0, int64_t s1) {
  const auto bytes = static_cast<int64_t>(dtype_bytes(t));
  return reinterpret_cast<uintptr_t>(data) % 16 == 0 && s0 * bytes % 16 == 0 && s1 * bytes % 16 == 0;
}

AttentionFacts attention_facts(const AttentionArgs& a, int max_query_len, device::Stream stream) {
  AttentionFacts f{device_facts(stream), {}};
  if (decode_sm90_fits(a, f)) count_decode_clusters(a, decode_units(a, max_query_len, true).wide, f, stream);
  return f;
}

// Which kernels take the rows of a step, and their units.
struct Cut {
  AttentionArgs a;
  AttentionChoice choice;
  uint64_t shape() const {
    uint64_t h = choice.decode != DecodeKernel::kNone ? 3 : choice.kernel == AttentionKernel::kLatent ? 5 : 1;
    for (const int v : {a.chunks, a.chunk_heads, a.unit_tokens, a.decode_all ? 1 : 0, a.decode_tokens, a.decode_blocks,
                        a.decode_ranges, a.decode_cluster, a.decode_nodes, a.decode_capacity, a.rows}) {
      h = device::fold_layout(h, static_cast<size_t>(v));
    }
    return h;
  }
};

AttentionArgs cut_long_rows(const AttentionArgs& a, AttentionKernel kernel, device::Stream stream) {
  switch (kernel) {
    case AttentionKernel::kNone:
    case AttentionKernel::kPlain:
    case AttentionKernel::kSegments:
      return a;
    case AttentionKernel::kLatent:
      return latent_units(a, stream);
    case AttentionKernel::kPrefill64:
    case AttentionKernel::kPrefill128:
    case AttentionKernel::kPrefillWidened:
      return prefill_units(a);
    case AttentionKernel::kMma64:
    case AttentionKernel::kMma128:
      return mma_units(a, 64, stream);
    case AttentionKernel::kMma256:
    case AttentionKernel::kMmaLatent:
      return mma_units(a, 32, stream);
  }
  return a;
}

Cut cut_rows(AttentionArgs a, const AttentionChoice& choice, int* plan, device::Stream stream) {
  a.plan = plan;
  if (choice.decode != DecodeKernel::kNone) {
    a.decode_plan = plan + plan_words(a.rows), a.decode_counters = a.decode_plan + plan_words(a.rows);
    a = choice.decode == DecodeKernel::kPortable ? decode_portable_units(a, choice, stream)
                                                 : decode_sm90_units(a, choice, stream);
  }
  return {cut_long_rows(a, choice.kernel, stream), choice};
}

// Prompts over codes, some KV heads at a time; with fewer than all of them the plan of the step is another one, for
// which the workspace has room.
Status prefill_widened(const AttentionArgs& all, int* plan, int64_t tokens, device::Stream stream) {
  const int at_once = widened_heads(all);
  for (int first = 0; first < all.kv_heads; first += at_once) {
    AttentionArgs a = all;
    const int heads = std::min(at_once, all.kv_heads - first);
    TERN_RETURN_IF_ERROR(widen_pages(a, first, heads, stream));
    if (heads < all.kv_heads) {
      a.plan = plan;
      if (a.decode_plan != nullptr)
        a.decode_plan = plan + plan_words(a.rows), a.decode_counters = a.decode_plan + plan_words(a.rows);
      TERN_RETURN_IF_ERROR(launch_plan(a, stream));
    }
    TERN_RETURN_IF_ERROR(attention_prefill(a, tokens, stream));
  }
  return {};
}

// Rows of the kernels that no decode kernel takes. `plan`: of the workspace.
Status run_long_rows(AttentionKernel kernel, const AttentionArgs& a, int* plan, int64_t tokens, int longest,
                     device::Stream stream) {
  switch (kernel) {
    case AttentionKernel::kNone:
    case AttentionKernel::kSegments:  // segment_attention() alone
      return {};
    case AttentionKernel::kPlain:
      return attention_plain(a, tokens, stream);
    case AttentionKernel::kMma64:
      return attention_64(a, longest, stream);
    case AttentionKernel::kMma128:
      return attention_128(a, longest, stream);
    case AttentionKernel::kMma256:
      return attention_256(a, longest, stream);
    case AttentionKernel::kMmaLatent:
      return attention_latent(a, longest, stream);
    case AttentionKernel::kPrefill64:
    case AttentionKernel::kPrefill128:
      return attention_prefill(a, tokens, stream);
    case AttentionKernel::kPrefillWidened:
      return prefill_widened(a, plan, tokens, stream);
    case AttentionKernel::kLatent:
      return attention_mla_sm90(a, tokens, stream);
  }
  return {};
}

Status run_paged(const AttentionArgs& args, const ops::AttentionPlan& plan, int64_t tokens, int max_query_len,
                 device::Stream stream) {
  const AttentionChoice c = choose_attention(args, max_query_len, attention_facts(args, max_query_len, stream));
  if (c.kernel == AttentionKernel::kPlain) return attention_plain(args, tokens, stream);
  Cut cut = cut_rows(args, c, args.plan, stream);
  if (plan.memory != nullptr && plan.shape == cut.shape()) {
    cut = cut_rows(args, c, static_cast<int*>(plan.memory), stream);
  } else if (Status s = launch_plan(cut.a, stream); !s.ok()) {
    return s;
  }
  cut.a.planned = true;
  TERN_RETURN_IF_ERROR(fuse_qkv_prepare(cut.a, tokens, max_query_len, stream));
  if (c.decode == DecodeKernel::kPortable) {
    TERN_RETURN_IF_ERROR(attention_decode_portable(cut.a, stream));
  } else if (c.decode != DecodeKernel::kNone) {
    TERN_RETURN_IF_ERROR(attention_decode_sm90(cut.a, c.decode, stream));
  }
  return run_long_rows(c.kernel, cut.a, args.plan, tokens, max_query_len, stream);
}

}  // namespace

AttentionArgs mma_units(AttentionArgs a, int queries, device::Stream stream) {
  const int group = a.heads / a.kv_heads;
  a.chunks = (group + queries - 1) / queries;
  a.chunk_heads = (group + a.chunks - 1) / a.chunks;
  a.unit_tokens = queries / a.chunk_heads;
  a.slot_capacity = a.slots == nullptr ? 0 : kSplitBytes / (static_cast<int64_t>(queries) * (a.dv + 2) * 4);
  a.split_below = 2 * state(stream).multiprocessors;
  return a;
}

Status attention(const ops::AttentionParams& p, device::Stream stream) {
  constexpr const char* kOp = "attention";
  const KvSpec& s = p.cache.spec;
  TERN_OP_CHECK(kOp,
                s.arrangement == KvArrangement::kHeadsKV && heads_fit(s) && s.kv_heads >= 1 && s.head_dim_k >= 8 &&
                    s.head_dim_k % 8 == 0 && s.head_dim_v >= 8 && s.head_dim_v % 8 == 0 && s.block_size >= 1 &&
                    p.cache.block_stride >= s.layer_block_bytes(),
                "the cache must be kHeadsKV with head sizes that are multiples of 8");
  const char* wrong = check_rows(p.q, p.block_table, p.row_start, p.context_len);
  TERN_OP_CHECK(kOp, wrong == nullptr, wrong);
  TERN_OP_CHECK(kOp, p.q.dim[2] == s.head_dim_k && p.q.dim[1] % s.kv_heads == 0, "the heads do not fit the cache");
  TERN_OP_CHECK(kOp, ops::is_act(p.out.dtype) && ops::is_matrix(p.out, p.q.dim[0], p.q.dim[1] * s.head_dim_v),
                "out must be [T, heads * head_dim_v]");
  if (p.q.dim[0] == 0 || p.context_len.dim[0] == 0) return {};
  TERN_OP_CHECK(kOp, p.workspace != nullptr && p.cache.base != nullptr, "memory is missing");
  AttentionArgs a = paged(p.q, p.cache, p.block_table, p.row_start, p.context_len, p.scale, p.workspace);
  a.kv_heads = s.kv_heads, a.dv = s.head_dim_v;
  a.out = p.out.data, a.out_f32 = p.out.dtype == DType::kF32;
  a.out_token = p.out.stride[0], a.out_head = s.head_dim_v;
  a.long_context = p.long_context, a.max_context = p.max_context_len;
  if (a.code != KvCode::kNone && a.q_f32) a.round_bf16 = false;
  return run_paged(a, p.plan, p.q.dim[0], p.max_query_len, stream);
}

Status mla_attention(const ops::MlaAttentionParams& p, device::Stream stream) {
  constexpr const char* kOp = "mla_attention";
  const KvSpec& s = p.cache.spec;
  TERN_OP_CHECK(kOp,
                s.arrangement == KvArrangement::kMlaRows && ops::is_act(s.dtype) && s.block_size >= 1 &&
                    p.cache.block_stride >= s.layer_block_bytes(),
                "the cache must be kMlaRows");
  const char* wrong = check_rows(p.q, p.block_table, p.row_start, p.context_len);
  TERN_OP_CHECK(kOp, wrong == nullptr, wrong);
  TERN_OP_CHECK(kOp, p.q.dim[2] == s.head_dim_k && p.kv_lora_rank >= 1 && p.kv_lora_rank <= s.head_dim_k,
                "the row width does not fit the cache");
  TERN_OP_CHECK(kOp,
                ops::is_act(p.out.dtype) && p.out.rank == 3 && ops::is_rows(p.out) && p.out.dim[0] == p.q.dim[0] &&
                    p.out.dim[1] == p.q.dim[1] && p.out.dim[2] == p.kv_lora_rank,
                "out must be [T, heads, kv_lora_rank]");
  if (p.q.dim[0] == 0 || p.context_len.dim[0] == 0) return {};
  TERN_OP_CHECK(kOp, p.workspace != nullptr && p.cache.base != nullptr, "memory is missing");
  AttentionArgs a = paged(p.q, p.cache, p.block_table, p.row_start, p.context_len, p.scale, p.workspace);
  a.latent = true, a.kv_heads = 1, a.dv = p.kv_lora_rank;
  a.out = p.out.data, a.out_f32 = p.out.dtype == DType::kF32;
  a.out_token = p.out.stride[0], a.out_head = p.out.stride[1];
  return run_paged(a, p.plan, p.q.dim[0], p.max_query_len, stream);
}

Status attention_plan(const ops::AttentionPlanParams& p, device::Stream stream) {
  const KvSpec& s = p.spec;
  const int64_t rows = p.context_len.dim[0];
  TERN_OP_CHECK("attention_plan", p.plan != nullptr && p.plan->memory != nullptr, "memory is missing");
  TERN_OP_CHECK("attention_plan",
                ops::is_vector(p.context_len, DType::kI32, rows) && ops::is_vector(p.row_start, DType::kI32, rows + 1),
                "row_start and context_len must be [R + 1] and [R] int32");
  TERN_OP_CHECK("attention_plan", s.kv_heads >= 1 && p.heads >= s.kv_heads && p.heads % s.kv_heads == 0,
                "the heads do not fit the cache");
  p.plan->shape = 0;
  if (s.dtype == DType::kF32 || rows == 0) return {};  // the plain kernel needs no plan
  AttentionArgs a;
  a.heads = p.heads, a.kv_heads = s.kv_heads, a.dk = s.head_dim_k, a.dv = s.head_dim_v;
  a.latent = s.arrangement == KvArrangement::kMlaRows;
  // Not said, and looked at only where 576 values are 512 and 64 rotary ones.
  if (a.latent) a.dv = a.dk == 576 ? 512 : a.dk;
  a.block_size = s.block_size, a.code = code_of(s);
  a.row_start = p.row_start.as<const int32_t>(), a.context_len = p.context_len.as<const int32_t>();
  a.rows = static_cast<int>(rows);
  a.long_context = p.long_context;
  // Stand-ins: the plan reads neither.
  a.cache = static_cast<const char*>(p.plan->memory), a.slots = static_cast<float*>(p.plan->memory);
  const AttentionChoice c = choose_attention(a, p.max_query_len, attention_facts(a, p.max_query_len, stream));
  if (c.kernel == AttentionKernel::kPlain) return {};
  const Cut cut = cut_rows(a, c, static_cast<int*>(p.plan->memory), stream);
  p.plan->shape = cut.shape();
  return launch_plan(cut.a, stream);
}

size_t attention_plan_bytes(device::Stream, int max_rows) {
  return max_rows <= 0 ? 0 : static_cast<size_t>(plan_bytes(max_rows));
}

size_t attention_workspace(device::Stream, int max_tokens, int heads, int head_dim) {
  if (max_tokens <= 0 || heads <= 0 || head_dim <= 0) return 0;
  return static_cast<size_t>(plan_bytes(max_tokens) + kSplitBytes);
}

namespace {

Status rotate_heads(const AttentionArgs& a, const ops::SegmentAttentionParams& p, const SegmentRotation& r,
                    device::Stream stream) {
  if (rotate_fits(a, r)) return rotate(a, r, p.q.dim[0], stream);
  TERN_RETURN_IF_ERROR(rope({p.q, p.cos, p.sin, ops::RopeStyle::kHalfSplit, {}}, stream));
  return rope({p.k, p.cos, p.sin, ops::RopeStyle::kHalfSplit, {}}, stream);
}

}  // namespace

Status segment_attention(const ops::SegmentAttentionParams& p, device::Stream stream) {
  constexpr const char* kOp = "segment_attention";
  const int64_t tokens = p.q.dim[0], heads = p.q.dim[1], dim = p.q.dim[2], segments = p.starts.dim[0] - 1;
  for (const TensorView* v : {&p.q, &p.k, &p.v}) {
    TERN_OP_CHECK(kOp,
                  ops::is_act(v->dtype) && v->rank == 3 && ops::is_rows(*v) && v->dim[0] == tokens &&
                      v->dim[1] == heads && v->dim[2] == dim,
                  "q, k and v must be [T, heads, D] of float32 or bfloat16");
  }
  TERN_OP_CHECK(kOp, dim >= 8 && dim % 8 == 0 && p.k.dtype == p.v.dtype, "D must be a multiple of 8, k and v alike");
  TERN_OP_CHECK(kOp, segments >= 0 && ops::is_vector(p.starts, DType::kI32, segments + 1), "starts must be [S + 1]");
  TERN_OP_CHECK(kOp, ops::is_act(p.out.dtype) && ops::is_matrix(p.out, tokens, heads * dim),
                "out must be [T, heads * D]");
  if (tokens == 0 || segments == 0) return {};
  TERN_OP_CHECK(kOp, p.workspace != nullptr, "memory is missing");
  AttentionArgs a;
  a.q = p.q.data, a.q_token = p.q.stride[0], a.q_head = p.q.stride[1], a.q_f32 = p.q.dtype == DType::kF32;
  a.k = p.k.data, a.k_token = p.k.stride[0], a.k_head = p.k.stride[1];
  a.v = p.v.data, a.v_token = p.v.stride[0], a.v_head = p.v.stride[1];
  a.kv_f32 = p.k.dtype == DType::kF32, a.round_bf16 = p.product == DType::kBF16;
  a.out = p.out.data, a.out_f32 = p.out.dtype == DType::kF32, a.out_token = p.out.stride[0], a.out_head = dim;
  a.heads = a.kv_heads = static_cast<int>(heads);
  a.dk = a.dv = static_cast<int>(dim);
  a.scale_log2 = p.scale * kLog2E;
  a.row_start = p.starts.as<const int32_t>(), a.rows = static_cast<int>(segments);
  a.plan = static_cast<int*>(p.workspace);
  const bool fits = a.round_bf16 && aligned(p.q.data, p.q.dtype, a.q_token, a.q_head) &&
                    aligned(p.k.data, p.k.dtype, a.k_token, a.k_head) &&
                    aligned(p.v.data, p.v.dtype, a.v_token, a.v_head);
  a.planned = p.planned;
  SegmentRotation rotation;
  if (p.cos.data != nullptr) {
    TERN_OP_CHECK(kOp,
                  p.cos.dtype == DType::kF32 && ops::is_matrix(p.cos, tokens, dim / 2) && p.sin.dtype == DType::kF32 &&
                      ops::is_matrix(p.sin, tokens, dim / 2),
                  "cos and sin must be [T, D / 2] float32");
    rotation = {p.cos.as<const float>(), p.sin.as<const float>(), p.cos.stride[0], p.sin.stride[0]};
  }
  const AttentionKernel kernel = choose_segments(a, tokens, fits, rotate_fits(a, rotation), device_facts(stream));
  if (kernel == AttentionKernel::kSegments) {
    return attention_segments(a, rotation, tokens, static_cast<char*>(p.workspace) + plan_bytes(segments), stream);
  }
  if (rotation.cos != nullptr) TERN_RETURN_IF_ERROR(rotate_heads(a, p, rotation, stream));
  return run_long_rows(kernel, a, a.plan, tokens, p.max_segment, stream);
}

size_t segment_attention_workspace(device::Stream, int64_t max_rows, int64_t max_segments, int heads, int head_dim) {
  return static_cast<size_t>(plan_bytes(max_segments)) + apart_bytes(max_rows, heads, head_dim);
}

}  // namespace tern::cuda
