#include "cuda/attention/portable/attention_mma.cuh"

namespace tern::cuda {

Status attention_latent(AttentionArgs a, int, device::Stream stream) {
  return launch_attention<AttentionShape<576, 512, 32, 32, 8, true>>(a, "attention_latent", stream);
}

}  // namespace tern::cuda
