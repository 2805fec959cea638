// Which shape of attention_decode_tma.cuh a head size takes; a cache of codes: attention_decode_codes.h.
#include <string_view>

#include "cuda/attention/decode/attention_decode_cluster_deterministic.cuh"
#include "cuda/attention/decode/attention_decode_codes.h"
#include "cuda/attention/decode/attention_decode_launch.cuh"
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
  const Shape shape{static_cast<unsigned>(a.decode_ranges), S::kThreads, S::kBytes};
  return a.decode_deterministic ? launch(stream, name, shape, decode_kernel<S>, a, maps)
                                : run_ranges<S>(a, maps, name, stream);
}

template <class S>
Status run_deterministic(const AttentionArgs& a, const DecodeMaps& maps, const char* name, device::Stream stream) {
  const Shape shape{static_cast<unsigned>(a.decode_ranges), S::kThreads, DeterministicShape<S>::kBytes,
                    static_cast<unsigned>(a.decode_cluster)};
  return launch(stream, name, shape, decode_deterministic_kernel<S>, a, maps);
}

template <class S>
int deterministic_at_once(int bits, device::Stream stream) {
  static ClusterCount counts[4];
  const Shape shape{dim3(1), S::kThreads, DeterministicShape<S>::kBytes, 1u << bits};
  return counts[bits].of("attention_plan", decode_deterministic_kernel<S>, shape, S::kBlocks, stream);
}

}  // namespace

void count_decode_clusters(const AttentionArgs& args, bool wide, AttentionFacts& f, device::Stream stream) {
  AttentionArgs a = args;
  a.decode_wide = wide;
  const auto count = [&](int bits, bool deep) {
    a.decode_cluster = 1 << bits, a.decode_deep = deep;
    if (a.code != KvCode::kNone) return with_codes(a, [&]<class D>() { return D::clusters_at_once(a, bits, stream); });
    return with_cluster_shape(a, [&]<class S>() { return clusters_at_once<S>(bits, stream); });
  };
  for (int bits = 1; bits <= kMostClusterBits; ++bits) {
    f.clusters.at_once[bits] = !f.deterministic ? count(bits, false) : with_deterministic_shape(a, [&]<class S>() {
      return deterministic_at_once<S>(bits, stream);
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
  } else if (a.code != KvCode::kNone) {
    with_codes(a, [&]<class D>() { D::set_ranges(a, stream); });
  } else {
    with_shape(a, [&]<class S>() { set_ranges<S>(a, stream); });
  }
  return a;
}

Status attention_decode_sm90(const AttentionArgs& args, DecodeKernel kernel, device::Stream stream) {
  AttentionArgs a = args;
  const bool behind =
      a.prepare.qkv != nullptr || std::string_view(state(stream).last_kernel).starts_with("qkv_prepare");
  a.decode_early = a.planned && state(stream).pdl && behind;
  if (a.code != KvCode::kNone) return with_codes(a, [&]<class D>() { return D::launch(a, kernel, stream); });
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
