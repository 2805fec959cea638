#include "model/layers/layers.h"
#include "ops/attention.h"
#include "ops/embedding.h"
#include "ops/linear.h"
#include "ops/rope.h"

namespace tern::model {

Status gqa_attention(Step& step, const AttentionSpec& spec, const RopeSpec& rope, float eps, const GqaWeights& w,
                     KvLayerView cache, TensorView x, TensorView out) {
  const Scratch scratch(step.arena);
  const int64_t d = spec.head_dim, heads = w.out.weight.k / d, kv_heads = (w.qkv.weight.n / d - heads) / 2;
  const TensorView qkv = step.between(step.tokens, w.qkv);
  const TensorView q = step.act(step.tokens, heads * d);
  const TensorView mixed = step.act(step.tokens, heads * d);
  const TensorView asked = step.wanted.rank == 0 ? mixed : step.act(step.results(), heads * d);
  void* workspace =
      step.arena.take(ops::attention_workspace(step.stream, step.tokens, static_cast<int>(heads), static_cast<int>(d)));
  if (step.measuring()) return {};

  TERN_RETURN_IF_ERROR(ops::linear({x, &w.qkv.weight, w.qkv.bias, qkv}, step.stream));
  const Batch& b = *step.batch;
  TERN_RETURN_IF_ERROR(ops::qkv_prepare({.qkv = qkv,
                                         .heads = static_cast<int>(heads),
                                         .kv_heads = static_cast<int>(kv_heads),
                                         .head_dim = static_cast<int>(d),
                                         .q_norm = w.q_norm,
                                         .k_norm = w.k_norm,
                                         .eps = eps,
                                         .cos = step.cos,
                                         .sin = step.sin,
                                         .style = rope.style,
                                         .cache = cache,
                                         .slot_mapping = b.slot_mapping.first(step.tokens),
                                         .q = q},
                                        step.stream));
  if (step.results() == 0) return {};
  TERN_RETURN_IF_ERROR(ops::attention({.q = q.split(heads, d),
                                       .cache = cache,
                                       .block_table = b.block_table.first(step.rows),
                                       .row_start = b.row_start.first(step.rows + 1),
                                       .context_len = b.context_len.first(step.rows),
                                       .out = mixed,
                                       .scale = spec.scale,
                                       .max_query_len = step.max_query_len,
                                       .max_context_len = step.max_context_len,
                                       .workspace = workspace,
                                       .plan = step.plan,
                                       .long_context = b.long_context},
                                      step.stream));
  if (step.wanted.rank != 0) TERN_RETURN_IF_ERROR(ops::gather_rows({mixed, step.wanted, asked}, step.stream));
  return ops::linear({asked, &w.out.weight, w.out.bias, out}, step.stream);
}

}  // namespace tern::model
