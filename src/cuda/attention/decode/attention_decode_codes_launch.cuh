// Which shape of attention_decode_tma.cuh a head size takes over a cache of codes.
#pragma once

#include "cuda/attention/decode/attention_decode_codes.h"
#include "cuda/attention/decode/attention_decode_launch.cuh"
#include "cuda/ptx/tensor_map.h"

namespace tern::cuda {
namespace {

// f.operator()<S>(): tiles have half of bfloat16's bytes, and a multiprocessor as many of them under way, in three
// blocks: what they do besides waiting takes half of the time that a tile does.
template <KvCode kCode, class F>
auto with_code_shape(const AttentionArgs& a, F&& f) {
  if (a.dk == 64)
    return a.decode_wide ? f.template operator()<CodesShape<kCode, 64, 2, 16, 2>>()
                         : f.template operator()<CodesShape<kCode, 64, 1, 14, 3>>();
  return a.decode_wide ? f.template operator()<CodesShape<kCode, 128, 2, 10, 2>>()
                       : f.template operator()<CodesShape<kCode, 128, 1, 8, 3>>();
}

// The same for a cluster, whose blocks have short parts of a context and leave room for the product behind them.
template <KvCode kCode, class F>
auto with_code_cluster_shape(const AttentionArgs& a, F&& f) {
  if (a.dk == 64)
    return a.decode_wide ? f.template operator()<CodesShape<kCode, 64, 2, 12, 2>>()
                         : f.template operator()<CodesShape<kCode, 64, 1, 12, 3>>();
  return a.decode_wide ? f.template operator()<CodesShape<kCode, 128, 2, 8, 2>>()
                       : f.template operator()<CodesShape<kCode, 128, 1, 6, 3>>();
}

}  // namespace

template <KvCode kCode>
int DecodeOfCodes<kCode>::clusters_at_once(const AttentionArgs& a, int bits, device::Stream stream) {
  return with_code_cluster_shape<kCode>(a, [&]<class S>() { return cuda::clusters_at_once<S>(bits, stream); });
}

template <KvCode kCode>
void DecodeOfCodes<kCode>::set_ranges(AttentionArgs& a, device::Stream stream) {
  with_code_shape<kCode>(a, [&]<class S>() { cuda::set_ranges<S>(a, stream); });
}

template <KvCode kCode>
Status DecodeOfCodes<kCode>::launch(const AttentionArgs& a, DecodeKernel kernel, device::Stream stream) {
  const int64_t rows = int64_t{2} * a.kv_heads * a.block_size * a.dk / 128;  // of 128 bytes
  DecodeMaps maps;
  TERN_RETURN_IF_ERROR(tensor_map_pages(a.cache, 64, rows, a.block_stride, kDecodeTile * a.dk / 128, &maps.whole));
  TERN_RETURN_IF_ERROR(tensor_map_pages(a.cache, 64, rows, a.block_stride, kDecodeBox * a.dk / 128, &maps.last));
  if (kernel == DecodeKernel::kCluster) {
    const char* name =
        a.dk == 64 ? "attention_decode_cluster_64_codes_sm90" : "attention_decode_cluster_128_codes_sm90";
    return with_code_cluster_shape<kCode>(a, [&]<class S>() { return run_cluster<S>(a, maps, name, stream); });
  }
  const char* name = a.dk == 64 ? "attention_decode_64_codes_sm90" : "attention_decode_128_codes_sm90";
  return with_code_shape<kCode>(a, [&]<class S>() { return run_ranges<S>(a, maps, name, stream); });
}

}  // namespace tern::cuda
