#include "cuda/attention/portable/attention_mma.cuh"

namespace tern::cuda {

Status attention_64(AttentionArgs a, int, device::Stream stream) {
  if (a.code == KvCode::kInt8)
    return launch_attention<AttentionShape<64, 64, 64, 64, 4, false, KvCode::kInt8>>(a, "attention_64_codes", stream);
  if (a.code == KvCode::kE4m3)
    return launch_attention<AttentionShape<64, 64, 64, 64, 4, false, KvCode::kE4m3>>(a, "attention_64_codes", stream);
  return launch_attention<AttentionShape<64, 64, 64, 64, 4, false>>(a, "attention_64", stream);
}

}  // namespace tern::cuda
