// The CUDA functions behind ops/backend.h and ops/sample_backend.h, by file.
#pragma once

#include "cuda/context.h"
#include "ops/backend.h"
#include "ops/sample_backend.h"

namespace tern::cuda {

Status rms_norm(const ops::RmsNormParams&, device::Stream);
Status add(const ops::AddParams&, device::Stream);
Status layer_norm(const ops::LayerNormParams&, device::Stream);
Status silu_mul(const ops::SiluMulParams&, device::Stream);
Status activate(const ops::ActivateParams&, device::Stream);
Status embedding(const ops::EmbeddingParams&, device::Stream);
Status resolve_ids(const ops::ResolveIdsParams&, device::Stream);
Status gather_rows(const ops::GatherRowsParams&, device::Stream);
Status take_rows(const ops::TakeRowsParams&, device::Stream);
Status scatter_rows(const ops::ScatterRowsParams&, device::Stream);
Status interpolate_rows(const ops::InterpolateRowsParams&, device::Stream);
Status rope_table(const ops::RopeTableParams&, device::Stream);
Status rope(const ops::RopeParams&, device::Stream);
Status qkv_prepare(const ops::QkvPrepareParams&, device::Stream);
Status mla_cache_write(const ops::MlaCacheWriteParams&, device::Stream);
Status attention(const ops::AttentionParams&, device::Stream);
Status mla_attention(const ops::MlaAttentionParams&, device::Stream);
Status attention_plan(const ops::AttentionPlanParams&, device::Stream);
size_t attention_plan_bytes(device::Stream, int max_rows);
size_t attention_workspace(device::Stream, int max_tokens, int heads, int head_dim);
Status segment_attention(const ops::SegmentAttentionParams&, device::Stream);
size_t segment_attention_workspace(device::Stream, int64_t max_rows, int64_t max_segments, int heads, int head_dim);
Status moe_route(const ops::MoeRouteParams&, device::Stream);
Status moe_permute(const ops::MoePermuteParams&, device::Stream);
Status moe_dispatch(const ops::MoeDispatchParams&, device::Stream);
Status moe_combine(const ops::MoeCombineParams&, device::Stream);
Status moe_combine_norm(const ops::MoeCombineNormParams&, device::Stream);
const ops::WeightFormat* find_weight_format(const char* name);
DType product_type(device::Stream, int64_t rows);
void open_tape(device::Stream, int64_t rows, bool always);
Status close_tape(device::Stream);

Status logit_mask(const ops::LogitMaskParams&, device::Stream);
Status logit_bias(const ops::LogitsParams&, device::Stream);
Status logit_min_tokens(const ops::LogitsParams&, device::Stream);
Status thinking_force(const ops::LogitsParams&, device::Stream);
Status thinking_advance(const ops::ThinkingParams&, device::Stream);
Status logit_penalties(const ops::LogitsParams&, device::Stream);
Status logit_bad_words(const ops::LogitsParams&, device::Stream);
Status slot_reset(const ops::SlotArrays&, int slot, device::Stream);
Status slot_mark(const ops::SlotMarkParams&, device::Stream);
Status sample(const ops::SampleParams&, device::Stream);
size_t sample_workspace(device::Stream, int64_t vocab);
Status token_logprobs(const ops::LogprobParams&, device::Stream);
Status capture_logits(const ops::CaptureParams&, device::Stream);
Status copy_block(const ops::CopyBlockParams&, device::Stream);

}  // namespace tern::cuda
