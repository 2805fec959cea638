// How the kernels of decode attention on Hopper are launched.
#pragma once

#include <algorithm>

#include "cuda/attention/attention_prefill.h"
#include "cuda/attention/decode/attention_decode_cluster.cuh"
#include "cuda/attention/decode/attention_decode_split.cuh"
#include "cuda/ptx/cluster_count.cuh"

namespace tern::cuda {
namespace {

// Blocks of a launch, of which a multiprocessor has room for `each`. In a lane: one, and the rest is for the others.
int most_blocks(int each, device::Stream stream) {
  return (state(stream).microbatch ? 1 : each) * state(stream).multiprocessors;
}

template <class S>
Status run_ranges(const AttentionArgs& a, const DecodeMaps& maps, const char* name, device::Stream stream) {
  using F = FreeShared<S>;
  const auto blocks = static_cast<unsigned>(a.decode_ranges);
  return launch(stream, name, {blocks, F::kThreads, F::kBytes}, decode_free_kernel<S>, a, maps);
}

template <class S>
Status run_cluster(const AttentionArgs& a, const DecodeMaps& maps, const char* name, device::Stream stream) {
  const Shape shape{static_cast<unsigned>(a.decode_ranges * a.decode_cluster), S::kThreads, ClusterShape<S>::kBytes,
                    static_cast<unsigned>(a.decode_cluster)};
  return launch(stream, name, shape, decode_cluster_kernel<S>, a, maps);
}

// How many clusters of 1 << bits blocks run at once; asked for once per GPU.
template <class S>
int clusters_at_once(int bits, device::Stream stream) {
  static ClusterCount counts[4];
  const Shape shape{dim3(1), S::kThreads, ClusterShape<S>::kBytes, 1u << bits};
  const int found = counts[bits].of("attention_plan", decode_cluster_kernel<S>, shape, S::kBlocks, stream);
  return std::min(found, most_blocks(S::kBlocks, stream) >> bits);
}

// Ranges, and how many states each may leave in `slots`.
template <class S>
void set_ranges(AttentionArgs& a, int ranges) {
  a.decode_ranges = ranges;
  a.decode_capacity = static_cast<int>(kSplitBytes / (int64_t{sizeof(float)} * S::kNode) / ranges) - 3;
}
template <class S>
void set_ranges(AttentionArgs& a, device::Stream stream) {
  set_ranges<S>(a, std::min(most_blocks(S::kBlocks, stream), kDecodeRanges));
}

}  // namespace
}  // namespace tern::cuda
