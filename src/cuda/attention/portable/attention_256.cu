#include "cuda/attention/portable/attention_mma.cuh"

namespace tern::cuda {

Status attention_256(AttentionArgs a, int, device::Stream stream) {
  if (a.code == KvCode::kInt8)
    return launch_attention<AttentionShape<256, 256, 32, 64, 8, false, KvCode::kInt8>>(a, "attention_256_codes",
                                                                                       stream);
  if (a.code == KvCode::kE4m3)
    return launch_attention<AttentionShape<256, 256, 32, 64, 8, false, KvCode::kE4m3>>(a, "attention_256_codes",
                                                                                       stream);
  return launch_attention<AttentionShape<256, 256, 32, 64, 8, false>>(a, "attention_256", stream);
}

}  // namespace tern::cuda
