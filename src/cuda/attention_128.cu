#include "cuda/attention_mma.cuh"

namespace tern::cuda {

Status attention_128(AttentionArgs a, int max_query_len, device::Stream stream) {
  // A tile of 16 queries when the longest row has no more: the bits are the same, the work is less.
  if (a.context_len != nullptr && max_query_len * (a.heads / a.kv_heads) <= 16) {
    return launch_attention<AttentionShape<128, 128, 16, 64, 4, false>>(a, "attention_128_few", stream);
  }
  return launch_attention<AttentionShape<128, 128, 64, 64, 4, false>>(a, "attention_128", stream);
}

}  // namespace tern::cuda
