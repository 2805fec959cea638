// Multi-head latent attention in absorbed form (models-other.md 7.3): queries enter the latent space, all heads read
// one cached row, and results leave the latent space per head.
#include "model/layers/layers.h"
#include "ops/attention.h"
#include "ops/embedding.h"
#include "ops/linear.h"
#include "ops/norm.h"
#include "ops/rope.h"

namespace tern::model {

Status mla_attention(Step& step, const AttentionSpec& spec, const RopeSpec& rope, const MlaWeights& w,
                     KvLayerView cache, TensorView x, TensorView out) {
  const Scratch scratch(step.arena);
  const int64_t t = step.tokens, heads = static_cast<int64_t>(w.w_uk.size());
  const int64_t latent = spec.kv_lora_rank, width = latent + spec.rope_dim;
  const int64_t q_lora = spec.q_lora_rank;
  const TensorView down = step.exact(t, q_lora + width);
  const TensorView q_in = q_lora > 0 ? step.act(t, q_lora) : x;
  const TensorView c = step.act(t, latent), k_rope = step.act(t, spec.rope_dim);
  const TensorView q_nope = step.act(t, heads * spec.nope_dim), q_rope = step.exact(t, heads * spec.rope_dim);
  const TensorView query = step.act(t, heads * width);
  const TensorView mixed = step.act(t, heads * latent);
  const TensorView asked = step.wanted.rank == 0 ? mixed : step.act(step.results(), heads * latent);
  const TensorView values = step.act(step.results(), heads * spec.v_dim);
  void* workspace = step.arena.take(
      ops::attention_workspace(step.stream, step.tokens, static_cast<int>(heads), static_cast<int>(width)));
  if (step.measuring()) return {};

  const device::Stream stream = step.stream;
  const auto norm = [&](TensorView in, TensorView weight, TensorView normed) {
    return ops::rms_norm({.x = in, .weight = weight, .out = normed, .eps = spec.latent_eps}, stream);
  };
  const auto rotate = [&](TensorView in, TensorView rotated) {
    return ops::rope({.x = in, .cos = step.cos, .sin = step.sin, .style = rope.style, .out = rotated}, stream);
  };
  TERN_RETURN_IF_ERROR(ops::linear({x, &w.down.weight, w.down.bias, down}, stream));
  TERN_RETURN_IF_ERROR(norm(down.columns(q_lora, q_lora + latent), w.kv_norm, c));
  TERN_RETURN_IF_ERROR(
      rotate(down.columns(q_lora + latent, q_lora + width).split(1, spec.rope_dim), k_rope.split(1, spec.rope_dim)));
  const Batch& b = *step.batch;
  TERN_RETURN_IF_ERROR(ops::mla_cache_write({c, k_rope, cache, b.slot_mapping.first(step.tokens)}, stream));

  if (step.results() == 0) return {};
  if (q_lora > 0) TERN_RETURN_IF_ERROR(norm(down.columns(0, q_lora), w.q_norm, q_in));
  TERN_RETURN_IF_ERROR(ops::linear({q_in, &w.q_nope, {}, q_nope}, stream));
  TERN_RETURN_IF_ERROR(ops::linear({q_in, &w.q_rope, {}, q_rope}, stream));
  // Columns [begin, end) of every head.
  const auto part = [](TensorView heads_view, int64_t begin, int64_t end) {
    heads_view.data = static_cast<char*>(heads_view.data) + begin * static_cast<int64_t>(dtype_bytes(heads_view.dtype));
    heads_view.dim[2] = end - begin;
    return heads_view;
  };
  const TensorView query_heads = query.split(heads, width);
  TERN_RETURN_IF_ERROR(
      ops::head_linear({q_nope.split(heads, spec.nope_dim), w.w_uk, part(query_heads, 0, latent)}, stream));
  TERN_RETURN_IF_ERROR(rotate(q_rope.split(heads, spec.rope_dim), part(query_heads, latent, width)));
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
                                           .workspace = workspace,
                                           .plan = step.plan},
                                          step.stream));
  if (step.wanted.rank != 0) TERN_RETURN_IF_ERROR(ops::gather_rows({mixed, step.wanted, asked}, stream));
  TERN_RETURN_IF_ERROR(
      ops::head_linear({asked.split(heads, latent), w.w_uv, values.split(heads, spec.v_dim)}, step.stream));
  return ops::linear({values, &w.out.weight, w.out.bias, out}, step.stream);
}

}  // namespace tern::model
