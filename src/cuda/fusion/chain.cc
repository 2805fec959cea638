// What is deferred into a chain, and how it is laid out for one launch; when ops may be deferred at all.
#include "cuda/fusion/fusion.h"
#include "cuda/gemm/gemm.h"
#include "cuda/gemm/may_fuse.h"
#include "cuda/runtime/cuda_ops.h"

namespace tern::cuda {
namespace {

bool at16(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

// A norm whose result the next product reads may be done by every block for itself: a wait less for all of them.
bool norm_in_product(const ChainStep& norm, const ChainStep& next) {
  return norm.product.n == 0 && next.product.n != 0 && next.product.x == norm.norm.y &&
         next.product.k == norm.norm.width;
}

// How many norms that add to a sum may be joined with the products behind them: the first ones, of one sum, in pairs. A
// block may still read the old sum while another writes the new one, so sums go to a spare place and back in turn.
int joined_sums(const Chain& chain) {
  const float* home = nullptr;
  int count = 0;
  for (int i = 0; i < chain.count; ++i) {
    const ChainNorm& norm = chain.steps[i].norm;
    if (norm.width == 0 || norm.residual == nullptr) continue;
    if (home == nullptr) home = norm.sum;
    if (i + 1 == chain.count || norm.sum != home || !norm_in_product(chain.steps[i], chain.steps[i + 1])) break;
    ++count;
  }
  return count / 2 * 2;
}

// Joins norms with the products behind them; `spare` has room for a sum.
void join_norms(Chain& chain, float* spare) {
  const int sums = joined_sums(chain);
  int turns = 0, to = 0;
  for (int i = 0; i < chain.count; ++i) {
    ChainStep step = chain.steps[i];
    const bool adds = step.norm.residual != nullptr;
    if (i + 1 < chain.count && (!adds || turns < sums) && norm_in_product(step, chain.steps[i + 1])) {
      if (adds && turns++ % 2 == 0) {
        step.norm.sum = spare;
      } else if (adds) {
        step.norm.residual = spare;
      }
      step.product = chain.steps[++i].product;
      step.product.x = nullptr;
    }
    chain.steps[to++] = step;
  }
  chain.count = to;
}

Status append(const ChainStep& step, device::Stream stream) {
  Chain& chain = state(stream).deferred->chain;
  TERN_RETURN_IF_ERROR(launch_norm_fusion(stream));
  if (chain.count == kChainSteps) TERN_RETURN_IF_ERROR(launch_deferred(stream));
  chain.steps[chain.count++] = step;
  return {};
}

}  // namespace

// Of more rows than one, products of their own are as fast.
void begin_deferral(device::Stream stream, int64_t rows, bool always) {
  const StreamState& s = state(stream);
  Deferred& d = *s.deferred;
  const bool hopper = s.arch >= 90 && s.arch < 100 && s.smem_limit >= 227 * 1024;
  d.chain.open = hopper && !s.deterministic && s.parts != nullptr && rows == 1;
  d.chain.least = always ? 0 : kChainWeight;
  d.norm.open = hopper && !s.deterministic && s.squares != nullptr && rows <= kNormFusedRows;
  d.norm.any = hopper;
}

Status end_deferral(device::Stream stream) {
  const Status launched = launch_deferred(stream);
  Deferred& d = *state(stream).deferred;
  d.chain.open = d.norm.open = d.norm.any = false;
  return launched;
}

bool defers_few_rows(device::Stream stream) { return state(stream).deferred->norm.open; }
bool defers(device::Stream stream) { return state(stream).deferred->norm.any; }

// Smaller weights are over before the blocks have waited for each other.
bool chain_fits(const Gemm& g, device::Stream stream) {
  const Chain& chain = state(stream).deferred->chain;
  return may_fuse(Fusion::kChain, g) && chain.open && g.n * g.k >= chain.least && g.x_bf16 && g.w_bf16 && g.rows == 1 &&
         g.offsets == nullptr && !g.heads && !g.gelu && mma_fits(g) && g.k % 32 == 0 && g.n % 16 == 0 && g.k >= 256 &&
         g.n < (1 << 24);
}

// A chain begins with a product: a norm alone is no reason for one.
bool chain_fits(const ops::RmsNormParams& p, device::Stream stream) {
  const int64_t n = p.x.dim[1];
  return state(stream).deferred->chain.count > 0 && p.x.rank == 2 && p.x.dim[0] == 1 && n % 8 == 0 &&
         n <= kChainNormed && p.x.dtype == DType::kF32 && p.out.dtype == DType::kBF16 && at16(p.x.data) &&
         at16(p.out.data) && at16(p.weight.data) && at16(p.residual.data);
}

Status append_to_chain(const Gemm& g, const void* weight, device::Stream stream) {
  ChainStep step;
  step.product = {.weight = weight,
                  .w_row = g.w_row,
                  .x = g.x,
                  .bias = g.bias,
                  .out = g.out,
                  .out_bf16 = g.out_bf16,
                  .gated = g.gated,
                  .n = static_cast<int>(g.n),
                  .k = static_cast<int>(g.k)};
  return append(step, stream);
}

Status append_to_chain(const ops::RmsNormParams& p, device::Stream stream) {
  ChainStep step;
  step.norm = {.x = p.x.as<const float>(),
               .residual = p.residual.as<const float>(),
               .sum = p.residual.as<float>(),
               .weight = p.weight.data,
               .weight_bf16 = p.weight.dtype == DType::kBF16,
               .eps = p.eps,
               .y = p.out.data,
               .width = static_cast<int>(p.x.dim[1])};
  return append(step, stream);
}

Status launch_deferred(device::Stream stream) {
  const StreamState& s = state(stream);
  if (s.deferred->chain.count == 0) return launch_norm_fusion(stream);
  Chain chain = s.deferred->chain;
  s.deferred->chain.count = 0;
  join_norms(chain, reinterpret_cast<float*>(s.parts));
  return launch_chain(chain, stream);
}

}  // namespace tern::cuda
