#include "cuda/attention/portable/attention_mma.cuh"

namespace tern::cuda {

Status attention_128(AttentionArgs a, int, device::Stream stream) {
  return launch_attention<AttentionShape<128, 128, 64, 64, 4, false>>(a, "attention_128", stream);
}

}  // namespace tern::cuda
