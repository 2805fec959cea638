// Prompt chunks over the paged cache.
#include "cuda/attention/attention_prefill.h"
#include "cuda/attention/prefill/attention_prefill.cuh"

namespace tern::cuda {
namespace {

using Shape64 = LongShape<64, 64, 3, 128, 4, 2>;
using Shape128 = LongShape<128, 128, 2, 128, 2, 2>;
static_assert(Shape128::kQueries == kPrefillQueries && Shape64::kBytes <= kPrefillShared &&
              Shape128::kBytes <= kPrefillShared);

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
