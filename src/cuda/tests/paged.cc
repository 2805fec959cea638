#include "cuda/tests/paged.h"

#include "kernels/kv_transfer.h"

namespace tern::cuda_test {
namespace {

KvSpec spec_of(DType type, int kv_heads, int dim, int block, bool latent) {
  KvSpec s;
  s.arrangement = latent ? KvArrangement::kMlaRows : KvArrangement::kCpuPacked;
  s.dtype = type, s.layers = 1, s.kv_heads = kv_heads;
  s.head_dim_k = dim, s.head_dim_v = latent ? 0 : dim, s.block_size = block;
  return s;
}

}  // namespace

PagedCache::PagedCache(Context& c, DType type, int kv_heads, int dim, int block, int blocks, bool latent)
    : c_(c),
      spec_(spec_of(type, kv_heads, dim, block, latent)),
      host_(spec_.layer_block_bytes() * static_cast<size_t>(blocks), static_cast<char>(0xff)),
      exchange_(c, type, {blocks, static_cast<int64_t>(spec_.layer_block_bytes() / dtype_bytes(type))}),
      blocks_(blocks) {
  std::memset(exchange_.host(), 0xff, exchange_.bytes());
  exchange_.push();
}

KvLayerView PagedCache::gpu() {
  KvLayerView v{exchange_.device_data(), spec_.layer_block_bytes(), spec_};
  if (spec_.arrangement == KvArrangement::kCpuPacked) v.spec.arrangement = KvArrangement::kHeadsKV;
  return v;
}

void PagedCache::random(uint32_t seed) {
  exchange_.random(seed);
  const size_t each = spec_.layer_block_bytes();
  for (int b = 0; b < blocks_; ++b) {
    const char* from = exchange_.host() + static_cast<size_t>(b) * each;
    const Status s = import_kv_block(spec_, from, host_.data() + static_cast<size_t>(b) * each);
    if (!s.ok()) c_.report(false, "import_kv_block", s.error().message);
  }
}

void PagedCache::compare_blocks(const std::string& name, double tolerance) {
  const size_t each = spec_.layer_block_bytes();
  std::vector<char> want(host_.size());
  for (int b = 0; b < blocks_; ++b) {
    const size_t at = static_cast<size_t>(b) * each;
    const Status s = export_kv_block(spec_, host_.data() + at, want.data() + at);
    if (!s.ok()) c_.report(false, name, s.error().message);
  }
  compare(c_, name, exchange_, want.data(), tolerance);
}

}  // namespace tern::cuda_test
