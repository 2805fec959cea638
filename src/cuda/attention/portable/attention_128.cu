#include "cuda/attention/portable/attention_mma.cuh"

namespace tern::cuda {

Status attention_128(AttentionArgs a, int, device::Stream stream) {
  if (a.code == KvCode::kInt8)
    return launch_attention<AttentionShape<128, 128, 64, 64, 4, false, KvCode::kInt8>>(a, "attention_128_codes",
                                                                                       stream);
  if (a.code == KvCode::kE4m3)
    return launch_attention<AttentionShape<128, 128, 64, 64, 4, false, KvCode::kE4m3>>(a, "attention_128_codes",
                                                                                       stream);
  return launch_attention<AttentionShape<128, 128, 64, 64, 4, false>>(a, "attention_128", stream);
}

}  // namespace tern::cuda
