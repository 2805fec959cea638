// What an op asks of fusion. Between begin_deferral() and end_deferral() (ops/deferral.h) products, norms and the pass
// before attention may be deferred until it is known what follows, and are then launched together with it. Every op
// that is not deferred calls launch_deferred() before it launches anything (launch() does).
#pragma once

#include "base/error.h"
#include "device/device.h"

namespace tern::ops {
struct MoeCombineNormParams;
struct QkvPrepareParams;
struct RmsNormParams;
}  // namespace tern::ops

namespace tern::cuda {

struct AttentionArgs;
struct Gemm;

// Whether products of few rows may wait for a norm behind them; whether anything may be deferred.
bool defers_few_rows(device::Stream stream);
bool defers(device::Stream stream);
// Launches what is deferred, as it came or fused.
Status launch_deferred(device::Stream stream);

// One row and large weights: products and norms that one persistent kernel runs (chain.h).
bool chain_fits(const Gemm& g, device::Stream stream);
bool chain_fits(const ops::RmsNormParams& p, device::Stream stream);
Status append_to_chain(const Gemm& g, const void* weight, device::Stream stream);
Status append_to_chain(const ops::RmsNormParams& p, device::Stream stream);

// A norm that the products around it do (norm_fusion.h). A product whose kernel can do the first part of a norm:
void defer_product(const Gemm& g, const void* weight, device::Stream stream);
// The last products of experts, for grouped_sum_fits():
void defer_experts(const Gemm& g, const void* const* weights, device::Stream stream);
// Whether what stands behind one of these is deferred, too.
bool defer(const ops::RmsNormParams& p, device::Stream stream);
bool defer(const ops::MoeCombineNormParams& p, device::Stream stream);
// Before a product whose kernel can do the second part of a norm. Launches what is deferred, fused if it may be.
Status fuse_norm_before(Gemm& g, device::Stream stream);

// Whether the pass before attention is deferred.
bool defer(const ops::QkvPrepareParams& p, device::Stream stream);
// Gives it to decode attention of `tokens` rows of q, if it is that of these rows and can be done there; else launches
// it.
Status fuse_qkv_prepare(AttentionArgs& a, int64_t tokens, int max_query_len, device::Stream stream);

}  // namespace tern::cuda
