// What is deferred around a norm, and what becomes of it.
#include <algorithm>

#include "cuda/attention/attention_args.h"
#include "cuda/attention/qkv/qkv_prepare.h"
#include "cuda/elementwise/norm_parts.h"
#include "cuda/fusion/fusion.h"
#include "cuda/gemm/blaslt.h"
#include "cuda/gemm/gemm.h"
#include "cuda/gemm/may_fuse.h"
#include "cuda/runtime/cuda_ops.h"

namespace tern::cuda {
namespace {

constexpr int kPassHeads = 16;  // of one row: of more, what every block of a cluster repeats shows

bool at16(const TensorView& v) {
  return reinterpret_cast<uintptr_t>(v.data) % 16 == 0 &&
         v.stride[0] * static_cast<int64_t>(dtype_bytes(v.dtype)) % 16 == 0;
}

// Whether [a, a + a_bytes) and [b, b + b_bytes) have a byte in common.
bool overlap(const void* a, int64_t a_bytes, const void* b, int64_t b_bytes) {
  const auto from = reinterpret_cast<uintptr_t>(a), other = reinterpret_cast<uintptr_t>(b);
  return from < other + static_cast<uintptr_t>(b_bytes) && other < from + static_cast<uintptr_t>(a_bytes);
}

// Blocks of the product may still read its rows while others leave those of the norm.
bool apart(const Gemm& g, const ops::RmsNormParams& p) {
  return !overlap(g.x, g.rows * g.x_row * 2, p.out.data, p.out.dim[0] * p.out.stride[0] * 2);
}

// Whether the table (may_fuse.h) has one of the fusions for which such a product is deferred.
bool may_join(const Gemm& g) {
  if (g.offsets != nullptr) return may_fuse(Fusion::kExpertSum, g);
  if (g.rows <= kNormFusedRows) return may_fuse(Fusion::kNormAfter, g);
  return may_fuse(Fusion::kResidualAdd, g) || may_fuse(Fusion::kPartsIntoNorm, g);
}

// Whether the norm can be left to the products around it.
bool norm_fits(const Gemm& g, const ops::RmsNormParams& p) {
  return may_join(g) && p.once && p.x.rank == 2 && p.residual.data != nullptr && p.out.dtype == DType::kBF16 &&
         at16(p.out) && at16(p.residual) && apart(g, p) && reinterpret_cast<uintptr_t>(p.weight.data) % 16 == 0;
}

bool reads_norm(const Gemm& g, const NormFusion& j) {
  const TensorView& rows = j.params.out;
  return g.x == rows.data && g.x_row == rows.stride[0] && g.rows == rows.dim[0] && g.k == rows.dim[1];
}

}  // namespace

void defer_product(const Gemm& g, const void* weight, device::Stream stream) {
  StreamState& s = state(stream);
  s.deferred->norm.product = true, s.deferred->norm.g = g, s.deferred->norm.weight = weight;
  s.settled = nullptr;  // as after the launch that this stands for
}

bool defer(const ops::RmsNormParams& p, device::Stream stream) {
  NormFusion& j = state(stream).deferred->norm;
  if (!j.product || j.norm || j.g.offsets != nullptr || !norm_fits(j.g, p)) return false;
  const bool reads = p.x.data == j.g.out && p.x.dtype == DType::kF32 && p.x.stride[0] == j.g.out_row &&
                     p.x.dim[0] == j.g.rows && p.x.dim[1] == j.g.n;
  if (!reads) return false;
  j.norm = true, j.params = p;
  return true;
}

// What is settled stays so: nothing is launched in between.
void defer_experts(const Gemm& g, const void* const* weights, device::Stream stream) {
  NormFusion& j = state(stream).deferred->norm;
  j.product = true, j.g = g;
  std::copy_n(weights, g.groups, j.experts);
}

bool defer(const ops::MoeCombineNormParams& p, device::Stream stream) {
  NormFusion& j = state(stream).deferred->norm;
  const ops::MoeCombineParams& c = p.combine;
  if (!j.product || j.norm || j.g.offsets == nullptr || !norm_fits(j.g, p.norm)) return false;
  const bool reads = c.y.data == j.g.out && (c.y.dtype == DType::kBF16) == j.g.out_bf16 &&
                     c.y.stride[0] == j.g.out_row && c.y.dim[0] == j.g.rows && c.y.dim[1] == j.g.n &&
                     c.row_of.dim[0] * c.row_of.dim[1] == j.g.rows && c.out.dim[0] <= kRegisterResidentRows;
  if (!reads || c.shared.data != nullptr) return false;
  j.norm = true, j.combine = c, j.params = p.norm;
  return true;
}

Status fuse_norm_before(Gemm& g, device::Stream stream) {
  StreamState& s = state(stream);
  NormFusion& j = s.deferred->norm;
  if (!j.norm || !reads_norm(g, j)) return launch_deferred(stream);
  const ops::RmsNormParams& p = j.params;
  Gemm first = j.g;
  float* const squares = s.squares + j.turn * kNormFusedRows * kNormFusedParts;
  const bool experts = first.offsets != nullptr;
  const int parts = static_cast<int>(first.n / (experts ? 16 : norm_width(first, gemm_facts(stream))));
  first.after = {.residual = p.residual.as<float>(),
                 .residual_row = p.residual.stride[0],
                 .weight = p.weight.data,
                 .weight_bf16 = p.weight.dtype == DType::kBF16,
                 .x = p.out.data,
                 .x_row = p.out.stride[0],
                 .squares = squares,
                 .parts = parts};
  g.before = {.squares = squares, .parts = parts, .eps = p.eps};
  j.product = j.norm = false, j.turn ^= 1;
  if (!experts) return product(first, j.weight, stream);
  const ExpertPicks picks{.row_of = j.combine.row_of.as<const int32_t>(),
                          .row_of_row = j.combine.row_of.stride[0],
                          .weights = j.combine.weights.as<const float>(),
                          .weights_row = j.combine.weights.stride[0],
                          .top_k = static_cast<int>(j.combine.row_of.dim[1]),
                          .pairs = static_cast<int>(first.rows),
                          .settled = s.settled == first.offsets};
  first.rows = p.out.dim[0];
  return gemm_grouped_sum(first, picks, j.experts, stream);
}

bool defer(const ops::QkvPrepareParams& p, device::Stream stream) {
  StreamState& s = state(stream);
  const bool whole = p.cos.data == nullptr || 2 * p.cos.dim[1] == p.head_dim;
  if (p.qkv.dim[0] == 1 && p.heads > kPassHeads) return false;
  if (!s.deferred->norm.any || p.q.data == nullptr || p.qkv.dtype != DType::kF32 || !whole ||
      p.cache.spec.dtype != DType::kBF16 || (p.head_dim != 64 && p.head_dim != 128)) {
    return false;
  }
  s.deferred->norm.prepare = true, s.deferred->norm.qkv = p;
  s.settled = nullptr;
  return true;
}

Status fuse_qkv_prepare(AttentionArgs& a, int64_t tokens, int max_query_len, device::Stream stream) {
  NormFusion& j = state(stream).deferred->norm;
  const ops::QkvPrepareParams& p = j.qkv;
  const bool mine = j.prepare && a.planned && a.decode_all && a.decode_ranges > 0 && max_query_len == 1 &&
                    a.rows == tokens && p.qkv.dim[0] == tokens && p.q.data == a.q && p.q.stride[0] == a.q_token &&
                    a.q_head == p.head_dim && p.heads == a.heads && p.kv_heads == a.kv_heads && p.head_dim == a.dk &&
                    p.cache.base == a.cache && static_cast<int64_t>(p.cache.block_stride) == a.block_stride;
  if (!mine || overlap(p.qkv.data, tokens * p.qkv.stride[0] * 4, a.out, tokens * a.out_token * (a.out_f32 ? 4 : 2)))
    return launch_deferred(stream);
  const TensorView& norm = p.q_norm.data != nullptr ? p.q_norm : p.k_norm;
  a.prepare = {.qkv = p.qkv.as<const float>(),
               .row = p.qkv.stride[0],
               .q_norm = p.q_norm.data,
               .k_norm = p.k_norm.data,
               .norm_bf16 = norm.dtype == DType::kBF16,
               .interleaved = p.style == ops::RopeStyle::kInterleaved,
               .eps = p.eps,
               .cos = p.cos.as<const float>(),
               .sin = p.sin.as<const float>(),
               .cos_row = p.cos.stride[0],
               .sin_row = p.sin.stride[0],
               .slots = p.slot_mapping.as<const int64_t>()};
  j.prepare = false;
  return {};
}

namespace {

// A product of many rows and the norm behind it. False: there is nothing for both.
Expected<bool> launch_many(const NormFusion& j, device::Stream stream) {
  const GemmFacts f = gemm_facts(stream);
  if (const int parts = parts_pay(j.g, f); parts > 1) {
    Gemm g = j.g;
    g.apart = reinterpret_cast<float*>(state(stream).parts);
    TERN_RETURN_IF_ERROR(run_gemm(choose_gemm(g, f), g, j.weight, stream));
    TERN_RETURN_IF_ERROR(rms_norm_parts(j.params, g.apart, parts, stream));
    return true;
  }
  if (!onto_pays(j.g, f)) return false;
  BlasLt& blas = *state(stream).blas;
  if (halves_pay(j.g, f)) {
    if (const float* halves = blas.run_halves(j.g, j.weight, stream); halves != nullptr) {
      TERN_RETURN_IF_ERROR(launched(stream, "cublaslt"));
      TERN_RETURN_IF_ERROR(rms_norm_parts(j.params, halves, 2, stream));
      return true;
    }
  }
  ops::RmsNormParams norm = j.params;
  Gemm onto = j.g;
  onto.out = norm.residual.data, onto.out_row = norm.residual.stride[0];
  if (!blas.run(onto, j.weight, stream, true)) return false;
  TERN_RETURN_IF_ERROR(launched(stream, "cublaslt"));
  norm.x = norm.residual, norm.residual = {};
  TERN_RETURN_IF_ERROR(cuda::rms_norm(norm, stream));
  return true;
}

}  // namespace

Status launch_norm_fusion(device::Stream stream) {
  NormFusion& j = state(stream).deferred->norm;
  if (j.prepare) {
    j.prepare = false;
    return launch_prepare(j.qkv, stream);
  }
  if (!j.product) return {};
  const bool norm = j.norm;
  j.product = j.norm = false;
  if (j.g.offsets != nullptr) {
    TERN_RETURN_IF_ERROR(grouped_product(j.g, j.experts, stream));
    return norm ? cuda::moe_combine_norm({j.combine, j.params}, stream) : Status();
  }
  if (norm && j.g.rows > kNormFusedRows) {
    TERN_ASSIGN_OR_RETURN(const bool done, launch_many(j, stream));
    if (done) return {};
  }
  TERN_RETURN_IF_ERROR(product(j.g, j.weight, stream));
  return norm ? cuda::rms_norm(j.params, stream) : Status();
}

}  // namespace tern::cuda
