// Which shape of attention_decode_tma.cuh a head size takes.
#include <algorithm>
#include <string_view>

#include "cuda/attention/decode/attention_decode_cluster_deterministic.cuh"
#include "cuda/attention/decode/attention_decode_split.cuh"
#include "cuda/ptx/cluster_count.cuh"
#include "cuda/ptx/tensor_map.h"

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

// The same for a cluster of a.few_cluster blocks, which needs room for what is sent. Of the largest clusters three
// blocks of a multiprocessor run at once, so that there are more of them, unless there are few. Beside two blocks of a
// cluster of four one of the product behind them finds room, which has its weights when they end: their share of a
// context is short.
template <class F>
auto with_cluster_shape(const AttentionArgs& a, F&& f) {
  const bool three = a.few_cluster == kMostCluster && !a.few_deep, four = a.few_cluster == 4;
  if (a.dk == 64 && a.few_wide) return f.template operator()<DecodeShape<64, 2, 10, 2>>();
  if (a.dk == 64)
    return three ? f.template operator()<DecodeShape<64, 1, 8, 3>>()
                 : f.template operator()<DecodeShape<64, 1, 12, 2>>();
  if (a.dk == 128 && a.few_wide) return f.template operator()<DecodeShape<128, 2, 5, 2>>();
  if (a.dk == 128)
    return three  ? f.template operator()<DecodeShape<128, 1, 4, 3>>()
           : four ? f.template operator()<DecodeShape<128, 1, 4, 2>>()
                  : f.template operator()<DecodeShape<128, 1, 6, 2>>();
  return a.few_wide ? f.template operator()<DecodeShape<256, 2, 6, 1>>()
                    : f.template operator()<DecodeShape<256, 1, 6, 1>>();
}

// The same for a cluster that keeps to the order of ranges: room for its nodes.
template <class F>
auto with_fixed_shape(const AttentionArgs& a, F&& f) {
  if (a.dk == 64)
    return a.few_wide ? f.template operator()<DecodeShape<64, 2, 10, 2>>()
                      : f.template operator()<DecodeShape<64, 1, 12, 2>>();
  if (a.dk == 128)
    return a.few_wide ? f.template operator()<DecodeShape<128, 2, 5, 2>>()
                      : f.template operator()<DecodeShape<128, 1, 6, 2>>();
  return a.few_wide ? f.template operator()<DecodeShape<256, 2, 5, 1>>()
                    : f.template operator()<DecodeShape<256, 1, 6, 1>>();
}

template <class S>
Status run(const AttentionArgs& a, const DecodeMaps& maps, const char* name, device::Stream stream) {
  const auto blocks = static_cast<unsigned>(a.few_ranges);
  if (a.few_deterministic) return launch(stream, name, {blocks, S::kThreads, S::kBytes}, decode_kernel<S>, a, maps);
  using F = FreeShared<S>;
  return launch(stream, name, {blocks, F::kThreads, F::kBytes}, decode_free_kernel<S>, a, maps);
}

template <class S>
Status run_cluster(const AttentionArgs& a, const DecodeMaps& maps, const char* name, device::Stream stream) {
  const Shape shape{static_cast<unsigned>(a.few_ranges * a.few_cluster), S::kThreads, ClusterShape<S>::kBytes,
                    static_cast<unsigned>(a.few_cluster)};
  return launch(stream, name, shape, decode_cluster_kernel<S>, a, maps);
}

template <class S>
Status run_fixed(const AttentionArgs& a, const DecodeMaps& maps, const char* name, device::Stream stream) {
  const Shape shape{static_cast<unsigned>(a.few_ranges), S::kThreads, DeterministicShape<S>::kBytes,
                    static_cast<unsigned>(a.few_cluster)};
  return launch(stream, name, shape, decode_deterministic_kernel<S>, a, maps);
}

// How many clusters of 1 << bits blocks run at once; asked for once per GPU.
template <class S, bool kDeterministic>
int clusters_at_once(int bits, device::Stream stream) {
  constexpr auto kKernel = [] {  // no kernel is compiled that nothing launches
    if constexpr (kDeterministic) {
      return decode_deterministic_kernel<S>;
    } else {
      return decode_cluster_kernel<S>;
    }
  }();
  constexpr size_t kBytes = kDeterministic ? DeterministicShape<S>::kBytes : ClusterShape<S>::kBytes;
  static ClusterCount counts[4];
  return counts[bits].of("attention_plan", kKernel, {dim3(1), S::kThreads, kBytes, 1u << bits}, S::kBlocks, stream);
}

// Blocks of a launch, of which a multiprocessor has room for `each`. In a lane: one, and the rest is for the others.
int most_blocks(int each, device::Stream stream) {
  return (state(stream).microbatch ? 1 : each) * state(stream).multiprocessors;
}

// The largest clusters of which there are as many as units, or none.
void choose_clusters(AttentionArgs& a, int64_t units, device::Stream stream) {
  for (int bits = 3; bits > 0; --bits) {
    a.few_cluster = 1 << bits,
    a.few_deep = a.few_cluster == kMostCluster && units << bits <= state(stream).multiprocessors;
    a.few_ranges = with_cluster_shape(a, [&]<class S>() {
      return std::min(clusters_at_once<S, false>(bits, stream), most_blocks(S::kBlocks, stream) >> bits);
    });
    if (units <= a.few_ranges) return;
  }
  a.few_cluster = 0;
}

// The same in deterministic mode, for decoding rows; their blocks can have ranges, too.
void choose_fixed_clusters(AttentionArgs& a, int64_t units, device::Stream stream) {
  with_fixed_shape(a, [&]<class S>() {
    for (int bits = 3; bits > 0; --bits) {
      const int clusters = clusters_at_once<S, true>(bits, stream);
      if (units > clusters || clusters << bits > kFewRanges) continue;
      a.few_cluster = 1 << bits, a.few_nodes = kDeterministicNodes, a.few_ranges = clusters << bits;
      a.few_capacity = static_cast<int>(kSplitBytes / (int64_t{sizeof(float)} * S::kNode) / a.few_ranges) - 3;
      return;
    }
  });
}

}  // namespace

bool decode_fits(const AttentionArgs& a, device::Stream stream) {
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
  a.few_deterministic = state(stream).deterministic;
  const int64_t units = int64_t{a.rows} * a.kv_heads * a.few_chunks;
  if (!a.few_deterministic) {
    choose_clusters(a, units, stream);
  } else if (max_query_len <= a.few_tokens) {
    choose_fixed_clusters(a, units, stream);
  }
  if (a.few_cluster > 0) return a;
  with_shape(a, [&]<class S>() {
    const int blocks = most_blocks(S::kBlocks, stream);
    a.few_ranges = blocks < kFewRanges ? blocks : kFewRanges;
    a.few_capacity = static_cast<int>(kSplitBytes / (int64_t{sizeof(float)} * S::kNode) / a.few_ranges) - 3;
  });
  return a;
}

Status attention_decode(const AttentionArgs& args, device::Stream stream) {
  AttentionArgs a = args;
  const bool behind =
      a.prepare.qkv != nullptr || std::string_view(state(stream).last_kernel).starts_with("qkv_prepare");
  a.few_early = a.planned && state(stream).pdl && behind;
  DecodeMaps maps;
  const int64_t rows = int64_t{2} * a.kv_heads * a.block_size;
  TERN_RETURN_IF_ERROR(tensor_map_pages(a.cache, a.dk, rows, a.block_stride, kFewTile, &maps.whole));
  TERN_RETURN_IF_ERROR(tensor_map_pages(a.cache, a.dk, rows, a.block_stride, kFewBox, &maps.last));
  const auto named = [&](const char* of64, const char* of128, const char* of256) {
    return a.dk == 64 ? of64 : a.dk == 128 ? of128 : of256;
  };
  if (a.few_nodes > 0) {
    const char* name = named("attention_decode_deterministic_64_sm90", "attention_decode_deterministic_128_sm90",
                             "attention_decode_deterministic_256_sm90");
    return with_fixed_shape(a, [&]<class S>() { return run_fixed<S>(a, maps, name, stream); });
  }
  if (a.few_cluster > 0) {
    const char* name = named("attention_decode_cluster_64_sm90", "attention_decode_cluster_128_sm90",
                             "attention_decode_cluster_256_sm90");
    return with_cluster_shape(a, [&]<class S>() { return run_cluster<S>(a, maps, name, stream); });
  }
  const char* name = named("attention_decode_64_sm90", "attention_decode_128_sm90", "attention_decode_256_sm90");
  return with_shape(a, [&]<class S>() { return run<S>(a, maps, name, stream); });
}

}  // namespace tern::cuda
