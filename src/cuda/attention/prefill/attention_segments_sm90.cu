// Segments of packed rows: pictures of a tower.
#include "cuda/attention/attention_prefill.h"
#include "cuda/attention/prefill/attention_prefill.cuh"

namespace tern::cuda {
namespace {

using Shape64 = LongShape<64, 64, 3, 128, 4, 2>;
using Shape72 = LongShape<80, 72, 3, 128, 2, 2, true>;
using Shape80 = LongShape<80, 80, 2, 128, 2, 2, true>;  // three groups lack registers
using Shape128 = LongShape<128, 128, 2, 128, 2, 2>;
static_assert(Shape64::kBytes <= kPrefillShared && Shape72::kBytes <= kPrefillShared &&
              Shape80::kBytes <= kPrefillShared && Shape128::kBytes <= kPrefillShared);

template <class C>
Status run(AttentionArgs a, int64_t tokens, const SegmentTails& tails, device::Stream stream) {
  a.chunks = a.chunk_heads = 1;
  a.unit_tokens = C::kQueries;
  a.slot_capacity = a.split_below = 0;  // never split
  if (!a.planned) TERN_RETURN_IF_ERROR(launch_plan(a, stream));
  LongMaps maps;
  const int values = C::kTail ? 64 : a.dk, rest = a.dk - 64;
  const auto map = [&](const void* data, int64_t head, int64_t token, int box, CUtensorMap* out) {
    return tensor_map_heads(data, values, a.heads, tokens, head, token, 1, box, out);
  };
  TERN_RETURN_IF_ERROR(map(a.q, a.q_head, a.q_token, C::kQueries, &maps.q));
  TERN_RETURN_IF_ERROR(map(a.k, a.k_head, a.k_token, C::kKeys, &maps.k));
  TERN_RETURN_IF_ERROR(map(a.v, a.v_head, a.v_token, C::kKeys, &maps.v));
  if constexpr (C::kTail) {
    const int64_t head = tokens * rest;
    TERN_RETURN_IF_ERROR(tensor_map_narrow(tails.q, rest, a.heads, tokens, head, rest, C::kQueries, &maps.q_tail));
    TERN_RETURN_IF_ERROR(tensor_map_narrow(tails.k, rest, a.heads, tokens, head, rest, C::kKeys, &maps.k_tail));
    TERN_RETURN_IF_ERROR(tensor_map_heads(tails.v, rest, a.heads, tokens, head, rest, 1, C::kKeys, &maps.v_tail));
  }
  return launch_long_rows<C, false, false>("attention_segments_sm90", a, maps, stream);
}

}  // namespace

Status attention_segments(AttentionArgs a, const SegmentRotation& rotation, int64_t tokens, void* apart,
                          device::Stream stream) {
  SegmentTails tails;
  if (apart_bytes(tokens, a.heads, a.dk) > 0) {
    TERN_RETURN_IF_ERROR(lay_apart(a, rotation, tokens, apart, &tails, stream));
  } else if (rotation.cos != nullptr) {
    TERN_RETURN_IF_ERROR(rotate(a, rotation, tokens, stream));
  }
  if (a.dk <= 64) return run<Shape64>(a, tokens, tails, stream);
  if (a.dk <= 72) return run<Shape72>(a, tokens, tails, stream);
  return a.dk <= 80 ? run<Shape80>(a, tokens, tails, stream) : run<Shape128>(a, tokens, tails, stream);
}

}  // namespace tern::cuda
