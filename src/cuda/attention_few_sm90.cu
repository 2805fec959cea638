// Which shape of attention_few_hopper.cuh a head size takes.
#include <string_view>

#include "cuda/attention_few_hopper.cuh"
#include "cuda/tensor_map.h"

namespace tern::cuda {
namespace {

// f.operator()<S>() with as many tiles under way as two blocks of a multiprocessor have room for, one of wide heads.
template <class F>
auto with_shape(const AttentionArgs& a, F&& f) {
  if (a.dk == 64)
    return a.few_wide ? f.template operator()<DecodeShape<64, 2, 12, 2>>()
                      : f.template operator()<DecodeShape<64, 1, 12, 2>>();
  if (a.dk == 128)
    return a.few_wide ? f.template operator()<DecodeShape<128, 2, 6, 2>>()
                      : f.template operator()<DecodeShape<128, 1, 6, 2>>();
  return a.few_wide ? f.template operator()<DecodeShape<256, 2, 6, 1>>()
                    : f.template operator()<DecodeShape<256, 1, 6, 1>>();
}

template <class S>
Status run(const AttentionArgs& a, const DecodeMaps& maps, const char* name, device::Stream stream) {
  if (Status s = allow_shared(name, decode_kernel<S>, S::kBytes); !s.ok()) return s;
  return launch(stream, name, {static_cast<unsigned>(a.few_ranges), S::kThreads, S::kBytes}, decode_kernel<S>, a, maps);
}

}  // namespace

// Below so many rows times KV heads the portable kernel is ahead: units are in many parts, and it joins them sooner.
constexpr int64_t kFewestUnits = 96;

bool decode_fits(const AttentionArgs& a, device::Stream stream) {
  if (!state(stream).deterministic && int64_t{a.rows} * a.kv_heads < kFewestUnits) return false;
  return state(stream).arch >= 90 && state(stream).smem_limit >= 224 * 1024 && a.cache != nullptr &&
         a.context_len != nullptr && !a.latent && !a.kv_f32 && a.dk == a.dv &&
         (a.dk == 64 || a.dk == 128 || a.dk == 256) && a.block_size % kFewTile == 0;
}

AttentionArgs decode_units(AttentionArgs a, int max_query_len, device::Stream stream) {
  const int group = a.few_group = a.heads / a.kv_heads;
  a.few_chunks = (group + 15) / 16;
  a.few_heads = (group + a.few_chunks - 1) / a.few_chunks;
  a.few_wide = a.few_heads > 8 || max_query_len > 8 / a.few_heads;
  a.few_tokens = (a.few_wide ? 16 : 8) / a.few_heads;
  a.few_all = state(stream).deterministic || max_query_len <= a.few_tokens;
  with_shape(a, [&]<class S>() {
    const int blocks = S::kBlocks * state(stream).multiprocessors;
    a.few_ranges = blocks < kFewRanges ? blocks : kFewRanges;
    a.few_capacity = static_cast<int>(kSplitBytes / (int64_t{sizeof(float)} * S::kNode) / a.few_ranges) - 3;
  });
  return a;
}

Status attention_decode(const AttentionArgs& args, device::Stream stream) {
  AttentionArgs a = args;
  a.few_early = a.planned && state(stream).pdl && state(stream).last_kernel == std::string_view(kQkvPrepareFast);
  DecodeMaps maps;
  const int64_t rows = int64_t{2} * a.kv_heads * a.block_size;
  TERN_RETURN_IF_ERROR(tensor_map_pages(a.cache, a.dk, rows, a.block_stride, kFewTile, &maps.whole));
  TERN_RETURN_IF_ERROR(tensor_map_pages(a.cache, a.dk, rows, a.block_stride, kFewBox, &maps.last));
  const char* name = a.dk == 64    ? "attention_few_64_sm90"
                     : a.dk == 128 ? "attention_few_128_sm90"
                                   : "attention_few_256_sm90";
  return with_shape(a, [&]<class S>() { return run<S>(a, maps, name, stream); });
}

}  // namespace tern::cuda
