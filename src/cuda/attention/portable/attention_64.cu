#include "cuda/attention/portable/attention_mma.cuh"

namespace tern::cuda {

Status attention_64(AttentionArgs a, int, device::Stream stream) {
  return launch_attention<AttentionShape<64, 64, 64, 64, 4, false>>(a, "attention_64", stream);
}

}  // namespace tern::cuda
