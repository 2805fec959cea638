#include "cuda/attention/portable/attention_mma.cuh"

namespace tern::cuda {

Status attention_256(AttentionArgs a, int, device::Stream stream) {
  return launch_attention<AttentionShape<256, 256, 32, 64, 8, false>>(a, "attention_256", stream);
}

}  // namespace tern::cuda
