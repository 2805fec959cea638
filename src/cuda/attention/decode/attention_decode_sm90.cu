// Which shape of attention_decode_tma.cuh a head size takes.
#include <algorithm>
#include <string_view>

#include "cuda/attention/attention_prefill.h"
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
    return a.decode_wide ? f.template operator()<DecodeShape<64, 2, 12, 2>>()
                         : f.template operator()<DecodeShape<64, 1, 12, 2>>();
  if (a.dk == 128)
    return a.decode_wide ? f.template operator()<DecodeShape<128, 2, 6, 2>>()
                         : f.template operator()<DecodeShape<128, 1, 6, 2>>();
  return a.decode_wide ? f.template operator()<DecodeShape<256, 2, 6, 1>>()
                       : f.template operator()<DecodeShape<256, 1, 6, 1>>();
}

// The same for a cluster of a.decode_cluster blocks, which needs room for what is sent. Of the largest clusters three
// blocks of a multiprocessor run at once, so that there are more of them, unless there are few. Beside two blocks of a
// cluster of four one of the product behind them finds room, which has its weights when they end: their share of a
// context is short.
template <class F>
auto with_cluster_shape(const AttentionArgs& a, F&& f) {
  const bool three = a.decode_cluster == kMostCluster && !a.decode_deep, four = a.decode_cluster == 4;
  if (a.dk == 64 && a.decode_wide) return f.template operator()<DecodeShape<64, 2, 10, 2>>();
  if (a.dk == 64)
    return three ? f.template operator()<DecodeShape<64, 1, 8, 3>>()
                 : f.template operator()<DecodeShape<64, 1, 12, 2>>();
  if (a.dk == 128 && a.decode_wide) return f.template operator()<DecodeShape<128, 2, 5, 2>>();
  if (a.dk == 128)
    return three  ? f.template operator()<DecodeShape<128, 1, 4, 3>>()
           : four ? f.template operator()<DecodeShape<128, 1, 4, 2>>()
                  : f.template operator()<DecodeShape<128, 1, 6, 2>>();
  return a.decode_wide ? f.template operator()<DecodeShape<256, 2, 6, 1>>()
                       : f.template operator()<DecodeShape<256, 1, 6, 1>>();
}

// The same for a cluster that keeps to the order of ranges: room for its nodes.
template <class F>
auto with_deterministic_shape(const AttentionArgs& a, F&& f) {
  if (a.dk == 64)
    return a.decode_wide ? f.template operator()<DecodeShape<64, 2, 10, 2>>()
                         : f.template operator()<DecodeShape<64, 1, 12, 2>>();
  if (a.dk == 128)
    return a.decode_wide ? f.template operator()<DecodeShape<128, 2, 5, 2>>()
                         : f.template operator()<DecodeShape<128, 1, 6, 2>>();
  return a.decode_wide ? f.template operator()<DecodeShape<256, 2, 5, 1>>()
                       : f.template operator()<DecodeShape<256, 1, 6, 1>>();
}

template <class S>
Status run(const AttentionArgs& a, const DecodeMaps& maps, const char* name, device::Stream stream) {
  const auto blocks = static_cast<unsigned>(a.decode_ranges);
  if (a.decode_deterministic) return launch(stream, name, {blocks, S::kThreads, S::kBytes}, decode_kernel<S>, a, maps);
  using F = FreeShared<S>;
  return launch(stream, name, {blocks, F::kThreads, F::kBytes}, decode_free_kernel<S>, a, maps);
}

template <class S>
Status run_cluster(const AttentionArgs& a, const DecodeMaps& maps, const char* name, device::Stream stream) {
  const Shape shape{static_cast<unsigned>(a.decode_ranges * a.decode_cluster), S::kThreads, ClusterShape<S>::kBytes,
                    static_cast<unsigned>(a.decode_cluster)};
  return launch(stream, name, shape, decode_cluster_kernel<S>, a, maps);
}

template <class S>
Status run_deterministic(const AttentionArgs& a, const DecodeMaps& maps, const char* name, device::Stream stream) {
  const Shape shape{static_cast<unsigned>(a.decode_ranges), S::kThreads, DeterministicShape<S>::kBytes,
                    static_cast<unsigned>(a.decode_cluster)};
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

// Ranges, and how many states each may leave in `slots`.
template <class S>
void set_ranges(AttentionArgs& a, int ranges) {
  a.decode_ranges = ranges;
  a.decode_capacity = static_cast<int>(kSplitBytes / (int64_t{sizeof(float)} * S::kNode) / ranges) - 3;
}

}  // namespace

void count_decode_clusters(const AttentionArgs& args, bool wide, AttentionFacts& f, device::Stream stream) {
  AttentionArgs a = args;
  a.decode_wide = wide;
  const auto count = [&](int bits, bool deep) {
    a.decode_cluster = 1 << bits, a.decode_deep = deep;
    return with_cluster_shape(a, [&]<class S>() {
      return std::min(clusters_at_once<S, false>(bits, stream), most_blocks(S::kBlocks, stream) >> bits);
    });
  };
  for (int bits = 1; bits <= kMostClusterBits; ++bits) {
    f.clusters.at_once[bits] = !f.deterministic ? count(bits, false) : with_deterministic_shape(a, [&]<class S>() {
      return clusters_at_once<S, true>(bits, stream);
    });
  }
  if (!f.deterministic) f.clusters.deep = count(kMostClusterBits, true);
}

AttentionArgs decode_sm90_units(AttentionArgs a, const AttentionChoice& choice, device::Stream stream) {
  const DecodeUnits& u = choice.units;
  a.decode_group = a.heads / a.kv_heads;
  a.decode_chunks = u.chunks, a.decode_heads = u.heads, a.decode_tokens = u.tokens, a.decode_wide = u.wide;
  a.decode_all = choice.kernel == AttentionKernel::kNone;
  a.decode_deterministic = state(stream).deterministic;
  if (choice.cluster_bits > 0) a.decode_cluster = 1 << choice.cluster_bits, a.decode_deep = choice.deep;
  if (choice.decode == DecodeKernel::kCluster) {
    a.decode_ranges = choice.clusters;
  } else if (choice.decode == DecodeKernel::kClusterDeterministic) {
    a.decode_nodes = kDeterministicNodes;
    with_deterministic_shape(a, [&]<class S>() { set_ranges<S>(a, choice.clusters << choice.cluster_bits); });
  } else {
    with_shape(a, [&]<class S>() { set_ranges<S>(a, std::min(most_blocks(S::kBlocks, stream), kDecodeRanges)); });
  }
  return a;
}

Status attention_decode_sm90(const AttentionArgs& args, DecodeKernel kernel, device::Stream stream) {
  AttentionArgs a = args;
  const bool behind =
      a.prepare.qkv != nullptr || std::string_view(state(stream).last_kernel).starts_with("qkv_prepare");
  a.decode_early = a.planned && state(stream).pdl && behind;
  DecodeMaps maps;
  const int64_t rows = int64_t{2} * a.kv_heads * a.block_size;
  TERN_RETURN_IF_ERROR(tensor_map_pages(a.cache, a.dk, rows, a.block_stride, kDecodeTile, &maps.whole));
  TERN_RETURN_IF_ERROR(tensor_map_pages(a.cache, a.dk, rows, a.block_stride, kDecodeBox, &maps.last));
  const auto named = [&](const char* of64, const char* of128, const char* of256) {
    return a.dk == 64 ? of64 : a.dk == 128 ? of128 : of256;
  };
  if (kernel == DecodeKernel::kClusterDeterministic) {
    const char* name = named("attention_decode_deterministic_64_sm90", "attention_decode_deterministic_128_sm90",
                             "attention_decode_deterministic_256_sm90");
    return with_deterministic_shape(a, [&]<class S>() { return run_deterministic<S>(a, maps, name, stream); });
  }
  if (kernel == DecodeKernel::kCluster) {
    const char* name = named("attention_decode_cluster_64_sm90", "attention_decode_cluster_128_sm90",
                             "attention_decode_cluster_256_sm90");
    return with_cluster_shape(a, [&]<class S>() { return run_cluster<S>(a, maps, name, stream); });
  }
  const char* name = named("attention_decode_64_sm90", "attention_decode_128_sm90", "attention_decode_256_sm90");
  return with_shape(a, [&]<class S>() { return run<S>(a, maps, name, stream); });
}

}  // namespace tern::cuda
