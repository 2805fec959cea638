// Decode attention on Hopper over a cache of codes: attention_decode_int8_sm90.cu, attention_decode_e4m3_sm90.cu.
#pragma once

#include "cuda/attention/attention_args.h"
#include "cuda/attention/choice.h"

namespace tern::cuda {

template <KvCode kCode>
struct DecodeOfCodes {
  // Clusters of 1 << bits blocks that run at once.
  static int clusters_at_once(const AttentionArgs& a, int bits, device::Stream stream);
  static void set_ranges(AttentionArgs& a, device::Stream stream);
  static Status launch(const AttentionArgs& a, DecodeKernel kernel, device::Stream stream);
};

// f.operator()<DecodeOfCodes<...>>() of the codes that `a` has.
template <class F>
auto with_codes(const AttentionArgs& a, F&& f) {
  if (a.code == KvCode::kInt8) return f.template operator()<DecodeOfCodes<KvCode::kInt8>>();
  return f.template operator()<DecodeOfCodes<KvCode::kE4m3>>();
}

}  // namespace tern::cuda
