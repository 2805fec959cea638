// Weight formats of a GPU: rows as they are, padded to 8 values, so that one layout serves cuBLASLt and own kernels.
#include <cstring>

#include "base/checked.h"
#include "cuda/gemm/blaslt.h"
#include "cuda/gemm/code_format.h"
#include "cuda/gemm/gemm.h"
#include "cuda/gemm/may_fuse.h"
#include "cuda/runtime/cuda_ops.h"
#include "cuda/runtime/staging.h"
#include "ops/op_check.h"
#include "ops/vision.h"

namespace tern::ops {

// The base class's own function; the shared object takes no symbol from its host.
Status WeightFormat::gather_rows(const PackedWeight&, TensorView, TensorView, device::Stream) const {
  return make_error(ErrorCode::kUnsupported, std::string("format ") + name() + " cannot give back single rows");
}

}  // namespace tern::ops

namespace tern::cuda {
namespace {

using ops::GroupedLinearParams;
using ops::HeadLinearParams;
using ops::is_act;
using ops::is_matrix;
using ops::is_rows;
using ops::is_vector;
using ops::LinearParams;
using ops::PackedWeight;

class RowFormat final : public ops::WeightFormat {
 public:
  RowFormat(const char* name, DType type) : name_(name), type_(type) {}
  const char* name() const override { return name_; }
  size_t packed_bytes(int64_t n, int64_t k) const override {
    return static_cast<size_t>(n * round_up<int64_t>(k, 8)) * dtype_bytes(type_);
  }
  int64_t row_granularity() const override { return 1; }
  Status pack(TensorView source, int64_t row_begin, int64_t n, int64_t k, void* dst) const override;
  Status run(const LinearParams& p, device::Stream stream) const override;
  Status run_grouped(const GroupedLinearParams& p, device::Stream stream) const override;
  Status run_heads(const HeadLinearParams& p, device::Stream stream) const override;
  Expected<bool> run_gated(const LinearParams& p, TensorView gated, device::Stream stream) const override;
  Expected<bool> run_grouped_gated(const GroupedLinearParams& p, TensorView gated,
                                   device::Stream stream) const override;
  Expected<bool> run_active(const LinearParams& p, ops::Activation kind, TensorView active,
                            device::Stream stream) const override;
  Status gather_rows(const PackedWeight& w, TensorView ids, TensorView out, device::Stream stream) const override;

 private:
  bool usable(const PackedWeight& w) const {
    return w.format == this && w.n > 0 && w.k > 0 && w.data.bytes() >= packed_bytes(w.n, w.k);
  }
  Gemm shape(const TensorView& x, const PackedWeight& w, const TensorView& out) const;
  Gemm grouped_shape(const GroupedLinearParams& p, const TensorView& out) const;
  Status check(const LinearParams& p) const;
  Status check_grouped(const GroupedLinearParams& p, const void** weights) const;
  Status fetch_rows(const GroupedLinearParams& p, device::Stream stream) const;

  const char* name_;
  DType type_;
};

Status RowFormat::pack(TensorView source, int64_t row_begin, int64_t n, int64_t k, void* dst) const {
  constexpr const char* kOp = "pack";
  TERN_OP_CHECK(kOp, is_act(source.dtype) && source.rank == 2 && is_rows(source) && source.dim[1] == k && k > 0,
                "the slice must be [rows, k] of float32 or bfloat16");
  TERN_OP_CHECK(kOp, row_begin >= 0 && row_begin + source.dim[0] <= n, "the slice lies outside the weight");
  const int64_t row = round_up<int64_t>(k, 8);
  return thread_staging().rows(source, type_, row,
                               static_cast<char*>(dst) + row_begin * row * static_cast<int64_t>(dtype_bytes(type_)));
}

Gemm RowFormat::shape(const TensorView& x, const PackedWeight& w, const TensorView& out) const {
  Gemm g;
  g.x = x.data, g.x_bf16 = x.dtype == DType::kBF16, g.x_row = x.stride[0];
  g.w_bf16 = type_ == DType::kBF16, g.w_row = round_up<int64_t>(w.k, 8);
  g.out = out.data, g.out_bf16 = out.dtype == DType::kBF16, g.out_row = out.stride[0];
  g.rows = x.dim[0], g.n = w.n, g.k = w.k;
  return g;
}

bool is_gate(GemmKernel kernel) {
  return kernel == GemmKernel::kGateWide || kernel == GemmKernel::kGateNarrow || kernel == GemmKernel::kGateSmall;
}

// Whether `gated` can take what comes of `out`, a product with rows [gate, up].
bool is_gated(const TensorView& out, const TensorView& gated) {
  return is_act(gated.dtype) && out.dim[1] % 2 == 0 && is_matrix(gated, out.dim[0], out.dim[1] / 2);
}

void add_bias(const LinearParams& p, Gemm& g) {
  g.bias = p.bias.as<const float>();
  if (p.short_bias.dtype == DType::kBF16) g.short_bias = p.short_bias.data;
}

Status RowFormat::check(const LinearParams& p) const {
  constexpr const char* kOp = "linear";
  const PackedWeight& w = *p.weight;
  TERN_OP_CHECK(kOp, usable(w), "the weight was not packed by this format");
  TERN_OP_CHECK(kOp, is_act(p.x.dtype) && is_matrix(p.x, p.x.dim[0], w.k), "x must be [T, K]");
  TERN_OP_CHECK(kOp, is_act(p.out.dtype) && is_matrix(p.out, p.x.dim[0], w.n), "out must be [T, N]");
  TERN_OP_CHECK(kOp, p.bias.data == nullptr || is_vector(p.bias, DType::kF32, w.n), "bias must be [N] float32");
  TERN_OP_CHECK(kOp,
                p.short_bias.data == nullptr || (p.bias.data != nullptr && is_act(p.short_bias.dtype) &&
                                                 is_vector(p.short_bias, p.short_bias.dtype, w.n)),
                "short_bias must be [N] beside bias");
  return {};
}

Status RowFormat::run(const LinearParams& p, device::Stream stream) const {
  TERN_RETURN_IF_ERROR(check(p));
  const PackedWeight& w = *p.weight;
  Gemm g = shape(p.x, w, p.out);
  add_bias(p, g);
  if (g.rows == 0) return {};
  const void* weight = w.data.data();
  if (chain_fits(g, stream)) return append_to_chain(g, weight, stream);
  const GemmFacts f = gemm_facts(stream);
  const bool few = defers_few_rows(stream);
  TERN_RETURN_IF_ERROR(few && behind_norm(g, f) ? fuse_norm_before(g, stream) : launch_deferred(stream));
  const bool many = defers(stream) && (onto_pays(g, f) || parts_pay(g, f) > 1);
  if (!many && !(few && before_norm(g, f))) return product(g, weight, stream);
  defer_product(g, weight, stream);
  return {};
}

// What is wrong with the parameters of a grouped product; device pointers of its weights.
Status RowFormat::check_grouped(const GroupedLinearParams& p, const void** weights) const {
  constexpr const char* kOp = "grouped_linear";
  const auto experts = static_cast<int64_t>(p.weights.size());
  const int64_t n = p.weights[0].n, k = p.weights[0].k;
  TERN_OP_CHECK(kOp, experts <= kMaxExperts, "there are more than 2048 experts");
  for (int64_t e = 0; e < experts; ++e) {
    const PackedWeight& w = p.weights[static_cast<size_t>(e)];
    TERN_OP_CHECK(kOp, usable(w) && w.n == n && w.k == k, "the weights must be alike and packed by this format");
    weights[e] = w.data.data();
  }
  TERN_OP_CHECK(kOp, is_act(p.x.dtype) && is_matrix(p.x, p.x.dim[0], k), "x must be [S, K]");
  TERN_OP_CHECK(kOp, is_act(p.out.dtype) && is_matrix(p.out, p.x.dim[0], n), "out must be [S, N]");
  TERN_OP_CHECK(kOp, is_vector(p.offsets, DType::kI32, experts + 1), "offsets must be [E + 1] int32");
  TERN_OP_CHECK(kOp,
                p.from.data == nullptr || (is_vector(p.from, DType::kI32, p.x.dim[0]) && p.source.dtype == p.x.dtype &&
                                           is_matrix(p.source, p.source.dim[0], k)),
                "from must be [S] int32 beside source [T, K]");
  return {};
}

// Rows that moe_permute() left where they were, for products that cannot read them there.
Status RowFormat::fetch_rows(const GroupedLinearParams& p, device::Stream stream) const {
  if (!rows_stay(p.source, p.from, static_cast<int64_t>(p.weights.size()), stream)) return {};
  return cuda::take_rows({p.source, p.from, p.x}, stream);
}

Gemm RowFormat::grouped_shape(const GroupedLinearParams& p, const TensorView& out) const {
  Gemm g = shape(p.x, p.weights[0], out);
  g.offsets = p.offsets.as<const int32_t>();
  g.groups = static_cast<int>(p.weights.size());
  return g;
}

Status RowFormat::run_grouped(const GroupedLinearParams& p, device::Stream stream) const {
  const void* weights[kMaxExperts];
  TERN_RETURN_IF_ERROR(check_grouped(p, weights));
  const Gemm g = grouped_shape(p, p.out);
  if (g.rows == 0) return {};
  TERN_RETURN_IF_ERROR(launch_deferred(stream));
  TERN_RETURN_IF_ERROR(fetch_rows(p, stream));
  const bool sums =
      p.once && may_fuse(Fusion::kExpertSum, g) && defers_few_rows(stream) && grouped_sum_fits(g, device_facts(stream));
  if (!sums) return grouped_product(g, weights, stream);
  defer_experts(g, weights, stream);
  return {};
}

Expected<bool> RowFormat::run_gated(const LinearParams& p, TensorView gated, device::Stream stream) const {
  const PackedWeight& w = *p.weight;
  TERN_RETURN_IF_ERROR(check(p));
  Gemm g = shape(p.x, w, gated);
  g.bias = p.bias.as<const float>(), g.gated = true;
  if (g.rows > 0 && is_gated(p.out, gated) && chain_fits(g, stream)) {
    TERN_RETURN_IF_ERROR(append_to_chain(g, w.data.data(), stream));
    return true;
  }
  const GemmFacts f = gemm_facts(stream);
  const bool whole_f32 = p.out.dtype == DType::kF32, fits = g.rows > 0 && is_gated(p.out, gated);
  const bool behind = whole_f32 && fits && defers_few_rows(stream) && behind_norm(g, f);
  TERN_RETURN_IF_ERROR(behind ? fuse_norm_before(g, stream) : launch_deferred(stream));
  const GemmChoice choice = fits ? choose_gated(g, whole_f32, f) : GemmChoice{GemmKernel::kApart};
  if (choice.kernel == GemmKernel::kApart) return false;
  TERN_RETURN_IF_ERROR(run_gemm(choice, g, w.data.data(), stream));
  // Steps of fewer rows may take cuBLASLt, and the start has no other occasion to time it.
  const Gemm whole = shape(p.x, w, p.out);
  if (is_gate(choice.kernel) && library_first(whole, f)) state(stream).blas->meet(whole, w.data.data(), stream);
  return true;
}

Expected<bool> RowFormat::run_grouped_gated(const GroupedLinearParams& p, TensorView gated,
                                            device::Stream stream) const {
  const void* weights[kMaxExperts];
  TERN_RETURN_IF_ERROR(check_grouped(p, weights));
  Gemm g = grouped_shape(p, gated);
  g.gated = true;
  if (!is_gated(p.out, gated)) return false;
  const DeviceFacts f = device_facts(stream);
  const bool whole_f32 = p.out.dtype == DType::kF32, aligned = weights_aligned(weights, g.groups);
  const GroupedChoice choice = choose_grouped_gated(g, aligned, whole_f32, f);
  if (choice.kernel == GroupedKernel::kApart) return false;
  TERN_RETURN_IF_ERROR(launch_deferred(stream));
  if (g.rows == 0) return true;
  if (rows_stay(p.source, p.from, g.groups, stream)) {
    Gemm apart = g;
    apart.x = p.source.data, apart.x_row = p.source.stride[0], apart.from = p.from.as<const int32_t>();
    const GroupedChoice gather = choose_grouped_gated(apart, aligned, whole_f32, f);
    if (gather.gathers()) {
      TERN_RETURN_IF_ERROR(gemm_grouped_gather(gather.kernel, apart, weights, stream));
      return true;
    }
    TERN_RETURN_IF_ERROR(fetch_rows(p, stream));
  }
  TERN_RETURN_IF_ERROR(cuda::run_grouped(choice, g, weights, stream));
  return true;
}

// With gelu behind it: cuBLASLt's form is the one with tanh.
Expected<bool> RowFormat::run_active(const LinearParams& p, ops::Activation kind, TensorView active,
                                     device::Stream stream) const {
  const PackedWeight& w = *p.weight;
  TERN_RETURN_IF_ERROR(check(p));
  TERN_OP_CHECK("linear", is_act(active.dtype) && is_matrix(active, p.x.dim[0], w.n), "active must be [T, N]");
  Gemm g = shape(p.x, w, active);
  add_bias(p, g);
  g.gelu = true;
  TERN_RETURN_IF_ERROR(launch_deferred(stream));
  if (kind != ops::Activation::kGeluTanh || !g.out_bf16 || g.short_bias == nullptr || !mma_fits(g)) return false;
  if (g.rows == 0) return true;
  if (!library_first(g, gemm_facts(stream)) || !state(stream).blas->run(g, w.data.data(), stream)) return false;
  TERN_RETURN_IF_ERROR(launched(stream, "cublaslt_gelu"));
  return true;
}

Status RowFormat::run_heads(const HeadLinearParams& p, device::Stream stream) const {
  constexpr const char* kOp = "head_linear";
  const auto heads = static_cast<int64_t>(p.weights.size());
  const int64_t n = p.weights[0].n, k = p.weights[0].k;
  TERN_OP_CHECK(kOp, heads <= kMaxExperts, "there are more than 2048 heads");
  const void* weights[kMaxExperts];
  for (int64_t h = 0; h < heads; ++h) {
    const PackedWeight& w = p.weights[static_cast<size_t>(h)];
    TERN_OP_CHECK(kOp, usable(w) && w.n == n && w.k == k, "the weights must be alike and packed by this format");
    weights[h] = w.data.data();
  }
  TERN_OP_CHECK(kOp, is_act(p.x.dtype) && p.x.rank == 3 && is_rows(p.x) && p.x.dim[1] == heads && p.x.dim[2] == k,
                "x must be [T, heads, K]");
  TERN_OP_CHECK(kOp,
                is_act(p.out.dtype) && p.out.rank == 3 && is_rows(p.out) && p.out.dim[0] == p.x.dim[0] &&
                    p.out.dim[1] == heads && p.out.dim[2] == n,
                "out must be [T, heads, N]");
  Gemm g = shape(p.x, p.weights[0], p.out);
  g.x_head = p.x.stride[1], g.out_head = p.out.stride[1];
  g.heads = true, g.groups = static_cast<int>(heads);
  if (g.rows == 0) return {};
  TERN_RETURN_IF_ERROR(launch_deferred(stream));
  return grouped_product(g, weights, stream);
}

Status RowFormat::gather_rows(const PackedWeight& w, TensorView ids, TensorView out, device::Stream stream) const {
  TERN_OP_CHECK("embedding", usable(w), "the table was not packed by this format");
  ops::EmbeddingParams p;
  p.table = tensor2(w.data.data(), type_, w.n, w.k, round_up<int64_t>(w.k, 8));
  p.ids = ids, p.out = out;
  return cuda::embedding(p, stream);
}

const RowFormat kBf16Format("bf16", DType::kBF16);
const RowFormat kF32Format("f32", DType::kF32);

}  // namespace

Status product(const Gemm& g, const void* weight, device::Stream stream) {
  if (g.codes.n > 0) return codes_product(g, weight, stream);
  const GemmFacts f = gemm_facts(stream);
  const GemmChoice choice = choose_gemm(g, f);
  if (choice.kernel != GemmKernel::kLibrary && choice.kernel != GemmKernel::kLibraryUnaligned)
    return run_gemm(choice, g, weight, stream);
  if (state(stream).blas->run(g, weight, stream)) return launched(stream, "cublaslt");
  return run_gemm(choose_gemm(g, f, false), g, weight, stream);
}

Status grouped_product(const Gemm& g, const void* const* weights, device::Stream stream) {
  const bool aligned = weights_aligned(weights, g.groups);
  return cuda::run_grouped(choose_grouped(g, aligned, device_facts(stream)), g, weights, stream);
}

DType product_type(device::Stream stream, int64_t rows) {
  const StreamState& s = state(stream);
  return s.blas != nullptr && !s.deterministic && rows > kNarrowRows ? DType::kBF16 : DType::kF32;
}

const ops::WeightFormat* find_weight_format(const char* name) {
  for (const ops::WeightFormat* f :
       {static_cast<const ops::WeightFormat*>(&kBf16Format), static_cast<const ops::WeightFormat*>(&kF32Format)}) {
    if (std::strcmp(f->name(), name) == 0) return f;
  }
  return find_code_format(name);
}

}  // namespace tern::cuda
