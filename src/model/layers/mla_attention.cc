// Multi-head latent attention in absorbed form (models-other.md 7.3): queries enter the latent space, all heads read one
// cached row, and results leave the latent space per head.
#include "model/layers/layers.h"
#include "ops/attention.h"
#include "ops/linear.h"
#include "ops/norm.h"
#include "ops/rope.h"

namespace tern::model {

Status mla_attention(Step& step, const AttentionSpec& spec, const RopeSpec& rope, const MlaWeights& w, KvLayerView cache,
                     TensorView x, TensorView out) {
  const Scratch scratch(step.arena);
  const int64_t t = step.tokens, heads = static_cast<int64_t>(w.w_uk.size());
  const int64_t latent = spec.kv_lora_rank, width = latent + spec.rope_dim, head = spec.nope_dim + spec.rope_dim;
  const int64_t q_lora = spec.q_lora_rank;
  const TensorView down = step.act(t, q_lora + width);
  const TensorView q = step.act(t, heads * head);
  const TensorView query = step.act(t, heads * width);
  const TensorView mixed = step.act(t, heads * latent);
  const TensorView values = step.act(t, heads * spec.v_dim);
  void* workspace = step.arena.take(
      ops::attention_workspace(step.stream, step.tokens, static_cast<int>(heads), static_cast<int>(width)));
  if (step.measuring()) return {};

  TERN_RETURN_IF_ERROR(ops::linear({x, &w.down.weight, w.down.bias, down}, step.stream));
  const TensorView c = down.columns(q_lora, q_lora + latent);
  const TensorView k_rope = down.columns(q_lora + latent, q_lora + width);
  TensorView q_in = x;
  if (q_lora > 0) {
    q_in = down.columns(0, q_lora);
    TERN_RETURN_IF_ERROR(ops::rms_norm({.x = q_in, .weight = w.q_norm, .out = q_in, .eps = spec.latent_eps}, step.stream));
  }
  TERN_RETURN_IF_ERROR(ops::linear({q_in, &w.q.weight, w.q.bias, q}, step.stream));
  TERN_RETURN_IF_ERROR(ops::rms_norm({.x = c, .weight = w.kv_norm, .out = c, .eps = spec.latent_eps}, step.stream));
  TERN_RETURN_IF_ERROR(ops::rope({.x = k_rope.split(1, spec.rope_dim), .cos = step.cos, .sin = step.sin, .style = rope.style}, step.stream));
  const Batch& b = *step.batch;
  TERN_RETURN_IF_ERROR(ops::mla_cache_write({c, k_rope, cache, b.slot_mapping.first(step.tokens)}, step.stream));

  // Per head: columns [0, n) or [n, m) of its values.
  const auto part = [](TensorView heads_view, int64_t begin, int64_t end) {
    heads_view.data = static_cast<char*>(heads_view.data) + begin * static_cast<int64_t>(dtype_bytes(heads_view.dtype));
    heads_view.dim[2] = end - begin;
    return heads_view;
  };
  const TensorView q_heads = q.split(heads, head), query_heads = query.split(heads, width);
  TERN_RETURN_IF_ERROR(ops::head_linear({part(q_heads, 0, spec.nope_dim), w.w_uk, part(query_heads, 0, latent)}, step.stream));
  TERN_RETURN_IF_ERROR(ops::rope({.x = part(q_heads, spec.nope_dim, head),
                                  .cos = step.cos,
                                  .sin = step.sin,
                                  .style = rope.style,
                                  .out = part(query_heads, latent, width)},
                                 step.stream));
  TERN_RETURN_IF_ERROR(ops::mla_attention({.q = query_heads,
                                           .cache = cache,
                                           .block_table = b.block_table.first(step.rows),
                                           .row_start = b.row_start.first(step.rows + 1),
                                           .context_len = b.context_len.first(step.rows),
                                           .out = mixed.split(heads, latent),
                                           .kv_lora_rank = static_cast<int>(latent),
                                           .scale = spec.scale,
                                           .max_query_len = step.max_query_len,
                                           .max_context_len = step.max_context_len,
                                           .workspace = workspace},
                                          step.stream));
  TERN_RETURN_IF_ERROR(ops::head_linear({mixed.split(heads, latent), w.w_uv, values.split(heads, spec.v_dim)}, step.stream));
  return ops::linear({values, &w.out.weight, w.out.bias, out}, step.stream);
}

}  // namespace tern::model
