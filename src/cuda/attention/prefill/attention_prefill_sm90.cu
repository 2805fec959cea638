// Prompt chunks over the paged cache.
#include "cuda/attention/attention_prefill.h"
#include "cuda/attention/prefill/attention_prefill.cuh"

namespace tern::cuda {
namespace {

using Shape64 = LongShape<64, 64, 3, 128, 4, 2>;
using Shape128 = LongShape<128, 128, 2, 128, 2, 2>;

template <class C>
Status run(const char* name, const AttentionArgs& a, int64_t tokens, device::Stream stream) {
  LongMaps maps;
  if (Status s =
          tensor_map_heads(a.q, C::kD, a.heads, tokens, a.q_head, a.q_token, a.chunk_heads, a.unit_tokens, &maps.q);
      !s.ok()) {
    return s;
  }
  if (Status s = tensor_map_pages(a.cache, C::kD, 2 * a.kv_heads * a.block_size, a.block_stride, kPage, &maps.k);
      !s.ok()) {
    return s;
  }
  maps.v = maps.k;
  // So few units that blocks would have none: those of many keys are in parts.
  const bool parts = 2 * tokens * a.heads <= int64_t{C::kQueries} * state(stream).multiprocessors;
  return parts ? launch_long_rows<C, true, true>(name, a, maps, stream)
               : launch_long_rows<C, true, false>(name, a, maps, stream);
}

}  // namespace

bool prefill_fits(const AttentionArgs& a, device::Stream stream) {
  const StreamState& s = state(stream);
  const int64_t group = a.heads / a.kv_heads;
  return s.arch >= 90 && !s.deterministic && a.cache != nullptr && !a.latent && !a.kv_f32 && !a.q_f32 &&
         a.context_len != nullptr && a.dk == a.dv && (a.dk == 128 || a.dk == 64) && a.block_size % kPage == 0 &&
         group <= Shape128::kQueries && static_cast<size_t>(s.smem_limit) >= Shape128::kBytes && a.scale_log2 > 0 &&
         a.out_token % 2 == 0;
}

AttentionArgs prefill_units(AttentionArgs a) {
  a.chunks = 1;
  a.chunk_heads = a.heads / a.kv_heads;
  a.unit_tokens = (a.dk == 128 ? Shape128::kQueries : Shape64::kQueries) / a.chunk_heads;
  a.slot_capacity = a.split_below = 0;  // never split
  return a;
}

Status attention_prefill(const AttentionArgs& a, int64_t tokens, device::Stream stream) {
  if (a.dk == 128) return run<Shape128>("attention_prefill_128_sm90", a, tokens, stream);
  return run<Shape64>("attention_prefill_64_sm90", a, tokens, stream);
}

}  // namespace tern::cuda
