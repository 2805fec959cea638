// Which shape of attention_decode.cuh a head size takes.
#include "cuda/attention/attention_prefill.h"
#include "cuda/attention/portable/attention_decode_kernel.cuh"
#include "ops/op_check.h"

namespace tern::cuda {
namespace {

template <class S>
Status run(const AttentionArgs& a, const char* name, device::Stream stream) {
  return launch(stream, name, {static_cast<unsigned>(a.decode_blocks), S::kThreads, S::kBytes},
                portable_decode_kernel<S>, a);
}

// f.operator()<S>() for codes: two blocks of a multiprocessor, or one of less shared memory, find room.
template <KvCode kCode, class F>
auto with_code_shape(int widest, F&& f) {
  if (widest <= 64) return f.template operator()<PortableDecodeShape<64, 12, kCode>>();
  if (widest <= 128) return f.template operator()<PortableDecodeShape<128, 8, kCode>>();
  return f.template operator()<PortableDecodeShape<256, 4, kCode>>();
}

// The same with the longest ring that shared memory has room for.
template <class F>
auto with_shape(const AttentionArgs& a, device::Stream stream, F&& f) {
  const int widest = a.dk > a.dv ? a.dk : a.dv;
  if (a.code == KvCode::kInt8) return with_code_shape<KvCode::kInt8>(widest, f);
  if (a.code == KvCode::kE4m3) return with_code_shape<KvCode::kE4m3>(widest, f);
  const bool roomy = state(stream).smem_limit >= 110 * 1024;
  if (widest <= 64) return f.template operator()<PortableDecodeShape<64, 6>>();
  if (widest <= 128) {
    return roomy ? f.template operator()<PortableDecodeShape<128, 4>>()
                 : f.template operator()<PortableDecodeShape<128, 3>>();
  }
  return roomy ? f.template operator()<PortableDecodeShape<256, 4>>()
               : f.template operator()<PortableDecodeShape<256, 2>>();
}

}  // namespace

AttentionArgs decode_portable_units(AttentionArgs a, const AttentionChoice& choice, device::Stream stream) {
  a.decode_chunks = choice.units.chunks, a.decode_heads = choice.units.heads, a.decode_tokens = choice.units.tokens;
  a.decode_all = choice.kernel == AttentionKernel::kNone;
  with_shape(a, stream, [&]<class S>() {
    const int64_t slots = kSplitBytes / static_cast<int64_t>(sizeof(float) * (2 * S::kM + S::kM * S::kD));
    a.decode_capacity = static_cast<int>(slots < kDecodeCounters ? slots : kDecodeCounters);
    const int each = 2 * S::kBytes <= static_cast<size_t>(state(stream).smem_limit) ? 2 : 1;
    a.decode_blocks = each * state(stream).multiprocessors;
  });
  return a;
}

Status attention_decode_portable(const AttentionArgs& a, device::Stream stream) {
  const int widest = a.dk > a.dv ? a.dk : a.dv;
  const bool codes = a.code != KvCode::kNone;
  const char* name = codes && widest <= 64    ? "attention_decode_64_codes"
                     : codes && widest <= 128 ? "attention_decode_128_codes"
                     : codes                  ? "attention_decode_256_codes"
                     : widest <= 64           ? "attention_decode_64"
                     : widest <= 128          ? "attention_decode_128"
                                              : "attention_decode_256";
  return with_shape(a, stream, [&]<class S>() { return run<S>(a, name, stream); });
}

}  // namespace tern::cuda
