#include "model/decoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "model/layers/layers.h"
#include "model/ranks.h"
#include "ops/deferral.h"
#include "ops/embedding.h"
#include "ops/norm.h"
#include "ops/rope.h"
#include "ops/vision.h"

namespace tern::model {

Expected<std::unique_ptr<Decoder>> Decoder::make(DecoderSpec spec, const RopeTable& table,
                                                 std::unique_ptr<DecoderWeights> weights, ModelInfo info,
                                                 const Shard& shard, device::Device& device) {
  std::unique_ptr<Decoder> d(new Decoder());
  const size_t half = table.inv_freq.size();
  TERN_ASSIGN_OR_RETURN(d->rope_memory_, device.allocate(half * sizeof(float) + half));
  char* base = d->rope_memory_.data();
  const device::Stream stream = device.stream();
  device.copy_to_device(base, table.inv_freq.data(), half * sizeof(float), stream);
  device.copy_to_device(base + half * sizeof(float), table.axis.data(), half, stream);
  TERN_RETURN_IF_ERROR(device.synchronize(stream));
  d->inv_freq_ = tensor1(base, DType::kF32, static_cast<int64_t>(half));
  d->axis_ = tensor1(base + half * sizeof(float), DType::kU8, static_cast<int64_t>(half));
  d->rope_factor_ = table.factor;
  for (int i = 0; i <= spec.layers; ++i) d->hidden_names_.push_back(fmt::format("hidden.{}", i));
  d->spec_ = std::move(spec);
  d->weights_ = std::move(weights);
  d->info_ = std::move(info);
  d->shard_ = shard;
  d->device_kind_ = device.info().kind;
  if (d->small_layers()) {
    TERN_ASSIGN_OR_RETURN(d->microbatches_, Microbatches::make(device));
  }
  return d;
}

Status Decoder::set_cache_scales(const CacheScales& scales, device::Device& device) {
  if (scales.source.empty()) return {};
  const size_t bytes = scales.k.size() * sizeof(float);
  TERN_ASSIGN_OR_RETURN(scale_memory_, device.allocate(2 * bytes));
  const device::Stream stream = device.stream();
  device.copy_to_device(scale_memory_.data(), scales.k.data(), bytes, stream);
  device.copy_to_device(scale_memory_.data() + bytes, scales.v.data(), bytes, stream);
  layer_scales_ = static_cast<int64_t>(scales.k.size()) / spec_.layers;
  const auto* first = reinterpret_cast<const float*>(scale_memory_.data());
  scales_ = {first, first + scales.k.size(), scales.channels};
  return device.synchronize(stream);
}

KvSpec decoder_kv_spec(const DecoderSpec& spec, const Shard& shard, DType type, device::DeviceKind device,
                       int block_size) {
  const AttentionSpec& a = spec.attention;
  KvSpec kv;
  kv.dtype = type;
  kv.layers = spec.layers;
  kv.block_size = block_size;
  if (a.kind == AttentionKind::kMla) {
    kv.arrangement = KvArrangement::kMlaRows;
    kv.kv_heads = 1;
    kv.head_dim_k = a.kv_lora_rank + a.rope_dim;
    return kv;
  }
  kv.arrangement = device == device::DeviceKind::kCpu ? KvArrangement::kCpuPacked : KvArrangement::kHeadsKV;
  kv.kv_heads = std::max(1, a.kv_heads / shard.ranks);
  kv.head_dim_k = kv.head_dim_v = a.head_dim;
  return kv;
}

std::vector<KvSpec> Decoder::kv_specs(int block_size) const {
  KvSpec kv = decoder_kv_spec(spec_, shard_, info_.cache, device_kind_, block_size);
  kv.rounded = info_.cache_rounded;
  return {kv};
}

KvLayerView Decoder::cache_of(const KvCache& cache, int layer) const {
  KvLayerView view = cache.layer(0, layer);
  view.scales = scales_;
  if (scales_.k != nullptr) view.scales.k += layer * layer_scales_, view.scales.v += layer * layer_scales_;
  return view;
}

size_t Decoder::workspace_bytes(const BatchLimits& limits, device::Stream stream) const {
  device::Arena arena;  // measures
  Step step{limits.max_tokens,
            limits.max_rows,
            limits.max_tokens,
            info_.max_position_embeddings,
            info_.activation,
            arena,
            stream,
            {},
            {},
            nullptr,
            nullptr,
            {}};
  Gathered gathered;
  gathered.tokens = int64_t{shard_.engines} * limits.max_tokens;
  if (shard_.engines > 1) step.gathered = &gathered;
  (void)run(step, nullptr, limits.max_logit_rows, {});
  return arena.peak();
}

// What all engines bring to this step.
Expected<Gathered> Decoder::gather(const ForwardContext& context) const {
  const ExpertGroup& group = context.experts;
  const device::Communicator& c = group.communicator;
  if (c.ranks != shard_.expert_ranks() || c.rank != shard_.expert_rank() ||
      group.tokens.size() != static_cast<size_t>(shard_.engines)) {
    return make_error(ErrorCode::kInvalidArgument, "the communicator is not of the ranks that share the experts");
  }
  Gathered g{.communicator = c};
  for (int e = 0; e < shard_.engines; ++e) {
    const int64_t count = group.tokens[static_cast<size_t>(e)];
    if (e == shard_.engine) g.own = g.tokens;
    // All ranks of an engine have its tokens: each brings a part.
    for (int r = 0; r < shard_.ranks; ++r) {
      g.first[static_cast<size_t>(e * shard_.ranks + r)] = g.tokens + count * r / shard_.ranks;
    }
    g.tokens += count;
  }
  g.first[static_cast<size_t>(shard_.expert_ranks())] = g.tokens;
  if (group.tokens[static_cast<size_t>(shard_.engine)] != context.batch.tokens) {
    return make_error(ErrorCode::kInvalidArgument, "the engines' tokens are not those of this batch");
  }
  return g;
}

// This engine has no tokens; its experts have those of others.
Status Decoder::serve_experts(Step& step) const {
  const TensorView none = tensor2(nullptr, step.type, 0, spec_.hidden_size);
  const ops::RmsNormParams norm{.x = tensor2(nullptr, DType::kF32, 0, spec_.hidden_size), .out = none};
  for (size_t i = 0; i < weights_->layers.size(); ++i) {
    if (spec_.moe_layer[i] == kDenseLayer) continue;
    TERN_RETURN_IF_ERROR(moe_mlp(step, spec_.moe, static_cast<int>(i), weights_->layers[i].moe, norm, norm));
  }
  return {};
}

Status Decoder::forward(const ForwardContext& context, TensorView logits) const {
  if (shard_.ranks != context.communicator.ranks || shard_.rank != context.communicator.rank)
    return make_error(ErrorCode::kInvalidArgument, "the communicator is not of the ranks that share the model");
  const Batch& b = context.batch;
  Gathered gathered;
  if (shard_.engines > 1) {
    TERN_ASSIGN_OR_RETURN(gathered, gather(context));
  }
  if (std::max<int64_t>(b.tokens, gathered.tokens) == 0) return {};
  if (context.cache.groups.size() != 1)
    return make_error(ErrorCode::kInvalidArgument, "the cache has not the model's layer groups");
  const size_t mark = context.workspace.mark();
  Step step{b.tokens,
            b.rows,
            b.max_query_len,
            b.max_context_len,
            info_.activation,
            context.workspace,
            context.stream,
            {},
            {},
            &b,
            context.probe,
            {}};
  step.communicator = context.communicator;
  if (shard_.engines > 1) step.gathered = &gathered;
  if (info_.activation == DType::kBF16) step.product = ops::product_type(context.stream, b.tokens);
  ops::begin_deferral(context.stream, b.tokens);
  Status status = b.tokens > 0 ? run(step, &context.cache, b.logit_rows, logits) : serve_experts(step);
  if (Status closed = ops::end_deferral(context.stream); status.ok()) status = closed;
  context.workspace.release(mark);
  return status;
}

Status Decoder::embed(Step& step, TensorView out) const {
  const TensorView ids = step.batch->token_ids.first(step.tokens);
  if (step.communicator.alone()) {
    TERN_RETURN_IF_ERROR(embed_rows(step, ids, out));
  } else {
    const Scratch scratch(step.arena);
    const VocabularyPart part = vocabulary_part(info_.vocab_size, shard_.rank, shard_.ranks);
    const TensorView local = step.arena.tensor(DType::kI32, step.tokens);
    TERN_RETURN_IF_ERROR(ops::vocabulary_ids({ids, local, part.first, part.count, info_.vocab_size}, step.stream));
    TERN_RETURN_IF_ERROR(embed_rows(step, local, out));
    TERN_RETURN_IF_ERROR(ops::clear_foreign_rows({ids, out, part.first, part.count}, step.stream));
    TERN_RETURN_IF_ERROR(step.reduce(out));
  }
  if (!step.batch->has_pictures) return {};
  return ops::take_rows({step.batch->pictures, step.batch->picture_row.first(step.tokens), out}, step.stream);
}

Status Decoder::embed_rows(Step& step, TensorView ids, TensorView out) const {
  ops::EmbeddingParams p{weights_->embedding, ids, out};
  if (weights_->embedding.empty()) p.packed = &weights_->lm_head.weight;
  return ops::embedding(p, step.stream);
}

Status Decoder::layer(Step& step, int index, KvLayerView cache, TensorView x, TensorView out) const {
  const LayerWeights& l = weights_->layers[static_cast<size_t>(index)];
  return spec_.attention.kind == AttentionKind::kGqa
             ? gqa_attention(step, spec_.attention, spec_.rope, spec_.norm_eps, l.gqa, cache, x, out)
             : mla_attention(step, spec_.attention, spec_.rope, l.mla, cache, x, out);
}

Status Decoder::head(Step& step, TensorView normed, int logit_rows, TensorView logits) const {
  const TensorView last = step.act(logit_rows, spec_.hidden_size);
  if (step.measuring()) return product_of_head(step, last, logits);
  if (logit_rows == 0) return {};
  TERN_RETURN_IF_ERROR(ops::gather_rows({normed, step.batch->logit_index.first(logit_rows), last}, step.stream));
  return product_of_head(step, last, logits);
}

bool Decoder::trims(const Step& step, int logit_rows) const {
  // Of all engines every layer of experts sees as many tokens.
  if (spec_.layers == 0 || step.gathered != nullptr) return false;
  if (step.measuring()) return true;
  const LayerWeights& last = weights_->layers.back();
  const bool by_token = spec_.moe_layer.back() != kDenseLayer && last.moe.split >= 0;
  return step.probe == nullptr && !by_token && 2 * logit_rows <= step.tokens;
}

// The last layer: tokens whose logits are not asked for only need their keys and values here.
Status Decoder::last_layer(Step& step, KvLayerView cache, int logit_rows, TensorView x, TensorView residual,
                           TensorView logits) const {
  const int64_t h = spec_.hidden_size;
  const bool runs = !step.measuring();
  Step rest = step;
  rest.tokens = logit_rows;
  if (runs && step.type == DType::kBF16) rest.product = ops::product_type(step.stream, logit_rows);
  const TensorView sum = rest.exact(logit_rows, h), in = rest.act(logit_rows, h), delta = rest.exact(logit_rows, h);
  step.wanted = runs ? step.batch->logit_index.first(logit_rows) : tensor1(nullptr, DType::kI32, logit_rows);
  TERN_RETURN_IF_ERROR(layer(step, spec_.layers - 1, cache, x, delta));
  if (runs && logit_rows == 0) return {};
  if (runs) TERN_RETURN_IF_ERROR(ops::gather_rows({residual, step.wanted, sum}, step.stream));
  TERN_RETURN_IF_ERROR(behind_attention(rest, spec_.layers - 1, in, sum, delta, weights_->final_norm));
  return product_of_head(rest, in, logits);
}

// The second half of a layer, and the norm of the next one. Both norms read what the ranks' parts of a product add up
// to.
Status Decoder::behind_attention(Step& step, int index, TensorView x, TensorView residual, TensorView delta,
                                 TensorView next_norm) const {
  const LayerWeights& l = weights_->layers[static_cast<size_t>(index)];
  const bool dense = spec_.moe_layer[static_cast<size_t>(index)] == kDenseLayer;
  // Queries may come of what the first product of latent attention reads.
  const bool one_product = spec_.attention.kind == AttentionKind::kGqa;
  // Adds what came before, in one pass with the norm after it.
  const auto norm = [&](TensorView weight, bool once) {
    return ops::RmsNormParams{
        .x = delta, .residual = residual, .weight = weight, .out = x, .eps = spec_.norm_eps, .once = once};
  };
  ops::RmsNormParams before = norm(l.post_norm, dense);
  // Hidden states that are a result have no product behind them.
  const bool result = spec_.head == HeadKind::kHidden && index + 1 == spec_.layers;
  const ops::RmsNormParams next = norm(next_norm, one_product && !result);
  if (!step.measuring() && (dense || (!step.communicator.alone() && step.gathered == nullptr))) {
    TERN_RETURN_IF_ERROR(step.reduce_norm(before));
    before.x = {};
  }
  if (!dense) return moe_mlp(step, spec_.moe, index, l.moe, before, next);
  TERN_RETURN_IF_ERROR(dense_mlp(step, l.dense, x, delta));
  return step.measuring() ? Status() : step.reduce_norm(next);
}

Status Decoder::whole_layer(Step& step, const KvCache* cache, int index, TensorView x, TensorView residual,
                            TensorView delta) const {
  const KvLayerView view = step.measuring() ? KvLayerView{} : cache_of(*cache, index);
  TERN_RETURN_IF_ERROR(layer(step, index, view, x, delta));
  const size_t next = static_cast<size_t>(index) + 1;
  return behind_attention(step, index, x, residual, delta,
                          next < weights_->layers.size() ? weights_->layers[next].input_norm : weights_->final_norm);
}

Status Decoder::product_of_head(Step& step, TensorView rows, TensorView logits) const {
  if (spec_.pooled() > 0) {
    return pool_head(step, spec_.head, weights_->score, rows, step.measuring() ? logits : logits.first(rows.dim[0]));
  }
  if (step.measuring()) return {};
  return ops::linear({rows, &weights_->lm_head.weight, {}, logits.first(rows.dim[0])}, step.stream);
}

Status Decoder::plan_attention(Step& step, const KvCache* cache) const {
  step.plan.memory = step.arena.take(ops::attention_plan_bytes(step.stream, step.rows));
  if (step.measuring() || step.plan.memory == nullptr) return {};
  const KvSpec& spec = cache->layer(0, 0).spec;
  const LayerWeights& l = weights_->layers[0];
  const auto heads = spec_.attention.kind == AttentionKind::kGqa ? l.gqa.out.weight.k / spec_.attention.head_dim
                                                                 : static_cast<int64_t>(l.mla.w_uk.size());
  const Batch& b = *step.batch;
  return ops::attention_plan({.spec = spec,
                              .heads = static_cast<int>(heads),
                              .tokens = step.tokens,
                              .row_start = b.row_start.first(step.rows + 1),
                              .context_len = b.context_len.first(step.rows),
                              .max_query_len = step.max_query_len,
                              .plan = &step.plan,
                              .long_context = b.long_context},
                             step.stream);
}

Status Decoder::run(Step& step, const KvCache* cache, int logit_rows, TensorView logits) const {
  const int64_t t = step.tokens, h = spec_.hidden_size, half = spec_.rope.dim / 2;
  const TensorView residual = step.exact(t, h), x = step.act(t, h), delta = step.exact(t, h);
  step.cos = step.arena.tensor(DType::kF32, t, half);
  step.sin = step.arena.tensor(DType::kF32, t, half);
  const Cut cut = cut_of(step, logit_rows);
  if (cut.parts == 1) TERN_RETURN_IF_ERROR(plan_attention(step, cache));
  const bool runs = !step.measuring();
  const auto show = [&](int i, TensorView value) -> Status {
    if (!runs || step.probe == nullptr) return {};
    TERN_RETURN_IF_ERROR(ops::end_deferral(step.stream));
    step.probe->tensor(hidden_names_[static_cast<size_t>(i)], value);
    ops::begin_deferral(step.stream, t);
    return {};
  };
  if (runs) {
    TensorView positions = step.batch->positions;
    positions.dim[1] = t;
    TERN_RETURN_IF_ERROR(ops::rope_table({positions, inv_freq_, axis_, rope_factor_, step.cos, step.sin}, step.stream));
    TERN_RETURN_IF_ERROR(embed(step, residual));
  }
  TERN_RETURN_IF_ERROR(show(0, residual));
  if (runs && spec_.layers > 0) {
    TERN_RETURN_IF_ERROR(ops::rms_norm(
        {.x = residual, .weight = weights_->layers[0].input_norm, .out = x, .eps = spec_.norm_eps}, step.stream));
  }
  if (cut.parts > 1) {
    TERN_RETURN_IF_ERROR(run_microbatches(step, *cache, cut, x, residual, delta));
    return head(step, x, logit_rows, logits);
  }
  const bool trimmed = trims(step, logit_rows);
  for (int i = 0; i < spec_.layers; ++i) {
    const bool last = i + 1 == spec_.layers;
    if (last && trimmed && runs) return last_layer(step, cache_of(*cache, i), logit_rows, x, residual, logits);
    TERN_RETURN_IF_ERROR(whole_layer(step, cache, i, x, residual, delta));
    if (!last) TERN_RETURN_IF_ERROR(show(i + 1, residual));
  }
  TERN_RETURN_IF_ERROR(show(spec_.layers, x));
  if (trimmed) TERN_RETURN_IF_ERROR(last_layer(step, {}, logit_rows, x, residual, logits));  // measures
  return head(step, x, logit_rows, logits);
}

}  // namespace tern::model
