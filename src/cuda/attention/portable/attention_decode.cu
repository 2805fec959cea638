// Which shape of attention_decode.cuh a head size takes.
#include "cuda/attention/portable/attention_decode_kernel.cuh"
#include "ops/op_check.h"

namespace tern::cuda {
namespace {

template <class S>
Status run(const AttentionArgs& a, const char* name, device::Stream stream) {
  return launch(stream, name, {static_cast<unsigned>(a.few_blocks), S::kThreads, S::kBytes}, few_kernel<S>, a);
}

// f.operator()<S>() with the longest ring that shared memory has room for.
template <class F>
auto with_shape(const AttentionArgs& a, device::Stream stream, F&& f) {
  const int widest = a.dk > a.dv ? a.dk : a.dv;
  const bool roomy = state(stream).smem_limit >= 110 * 1024;
  if (widest <= 64) return f.template operator()<FewShape<64, 6>>();
  if (widest <= 128) {
    return roomy ? f.template operator()<FewShape<128, 4>>() : f.template operator()<FewShape<128, 3>>();
  }
  return roomy ? f.template operator()<FewShape<256, 4>>() : f.template operator()<FewShape<256, 2>>();
}

}  // namespace

bool few_fits(const AttentionArgs& a) {
  return a.cache != nullptr && a.context_len != nullptr && !a.latent && !a.kv_f32 && a.dk <= 256 && a.dv <= 256 &&
         a.block_size % 16 == 0;
}

AttentionArgs few_units(AttentionArgs a, int max_query_len, device::Stream stream) {
  if (decode_fits(a, stream)) return decode_units(a, max_query_len, stream);
  const int group = a.heads / a.kv_heads;
  a.few_chunks = (group + 15) / 16;
  a.few_heads = (group + a.few_chunks - 1) / a.few_chunks;
  a.few_tokens = 16 / a.few_heads;
  a.few_all = state(stream).deterministic || max_query_len <= a.few_tokens;
  with_shape(a, stream, [&]<class S>() {
    const int64_t slots = kSplitBytes / static_cast<int64_t>(sizeof(float) * (2 * S::kM + S::kM * S::kD));
    a.few_capacity = static_cast<int>(slots < kFewCounters ? slots : kFewCounters);
    const int each = 2 * S::kBytes <= static_cast<size_t>(state(stream).smem_limit) ? 2 : 1;
    a.few_blocks = each * state(stream).multiprocessors;
  });
  return a;
}

Status attention_decode_rows(const AttentionArgs& a, device::Stream stream) {
  if (a.few_ranges > 0) return attention_decode(a, stream);
  const int widest = a.dk > a.dv ? a.dk : a.dv;
  const char* name = widest <= 64    ? "attention_decode_64"
                     : widest <= 128 ? "attention_decode_128"
                                     : "attention_decode_256";
  return with_shape(a, stream, [&]<class S>() { return run<S>(a, name, stream); });
}

}  // namespace tern::cuda
