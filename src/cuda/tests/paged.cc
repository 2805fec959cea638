#include "cuda/tests/paged.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "device/tests/kv_plain.h"
#include "ops/attention.h"

namespace tern::cuda_test {
namespace {

KvSpec spec_of(DType type, int kv_heads, int dim, int block, bool latent) {
  KvSpec s;
  s.arrangement = latent ? KvArrangement::kMlaRows : KvArrangement::kCpuPacked;
  s.dtype = type, s.layers = 1, s.kv_heads = kv_heads;
  s.head_dim_k = dim, s.head_dim_v = latent ? 0 : dim, s.block_size = block;
  return s;
}

int64_t widest(const std::vector<Row>& rows, int block) {
  int most = 1;
  for (const Row& r : rows) most = std::max(most, (r.context + block - 1) / block);
  return most;
}

}  // namespace

PagedCache::PagedCache(Context& c, DType type, int kv_heads, int dim, int block, int blocks, bool latent)
    : c_(c),
      spec_(spec_of(type, kv_heads, dim, block, latent)),
      host_(spec_.layer_block_bytes() * static_cast<size_t>(blocks), static_cast<char>(0xff)),
      exchange_(c, spec_.quantized() ? DType::kU8 : type,
                {blocks, static_cast<int64_t>(spec_.layer_block_bytes() / dtype_bytes(type))}),
      blocks_(blocks) {
  std::memset(exchange_.host(), 0xff, exchange_.bytes());
  exchange_.copy_to_device();
}

KvLayerView PagedCache::gpu() {
  KvLayerView v{exchange_.device_data(), spec_.layer_block_bytes(), spec_};
  if (spec_.arrangement == KvArrangement::kCpuPacked) v.spec.arrangement = KvArrangement::kHeadsKV;
  return v;
}

void PagedCache::random(uint32_t seed) {
  const size_t each = spec_.layer_block_bytes();
  if (spec_.quantized()) {
    random_codes(seed);
  } else {
    exchange_.random(seed);
  }
  for (int b = 0; b < blocks_; ++b) {
    const char* from = exchange_.host() + static_cast<size_t>(b) * each;
    device::kv_from_plain(spec_, from, host_.data() + static_cast<size_t>(b) * each);
  }
}

void PagedCache::random_codes(uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<int> code(-127, 126);
  std::uniform_real_distribution<float> scale(0.5f, 2.0f);
  const size_t each = spec_.layer_block_bytes(), codes = spec_.scales_offset();
  // Codes of e4m3 as they are: the largest exponents are rare enough to leave sums in order.
  const float unit = spec_.dtype == DType::kI8 ? 1.0f / 127 : 1.0f / 448;
  for (int b = 0; b < blocks_; ++b) {
    char* to = exchange_.host() + static_cast<size_t>(b) * each;
    for (size_t i = 0; i < codes; ++i) {
      int c = code(random);
      if (spec_.dtype == DType::kF8E4M3 && (c & 0x7f) == 0x7f) c ^= 1;  // no number, which is never written
      to[i] = static_cast<char>(c);
    }
    for (size_t i = codes; i < each; i += sizeof(float)) {
      const float v = scale(random) * unit;
      std::memcpy(to + i, &v, sizeof v);
    }
  }
  exchange_.copy_to_device();
}

void PagedCache::compare_blocks(const std::string& name, double tolerance) {
  const size_t each = spec_.layer_block_bytes();
  std::vector<char> want(host_.size());
  for (int b = 0; b < blocks_; ++b) {
    const size_t at = static_cast<size_t>(b) * each;
    device::kv_to_plain(spec_, host_.data() + at, want.data() + at);
  }
  compare(c_, name, exchange_, want.data(), tolerance);
}

void PagedCache::compare_codes(const std::string& name, int most) {
  const std::vector<char> got = exchange_.copy_to_host();
  const size_t each = spec_.layer_block_bytes(), codes = spec_.scales_offset();
  std::vector<char> want(each);
  int worst = 0;
  bool same = true;
  for (int b = 0; b < blocks_; ++b) {
    device::kv_to_plain(spec_, host_.data() + static_cast<size_t>(b) * each, want.data());
    const char* have = got.data() + static_cast<size_t>(b) * each;
    same = same && std::memcmp(have, want.data(), each) == 0;
    for (size_t i = 0; i < codes; ++i) {
      // Codes of one sign are in order in either type.
      const int x = static_cast<int8_t>(have[i]), y = static_cast<int8_t>(want[i]);
      worst = std::max(worst, std::min(std::abs(x - y), (x ^ y) == -128 ? 0 : 256));
    }
    for (size_t i = codes; i < each; i += sizeof(float)) {
      float x, y;
      std::memcpy(&x, have + i, sizeof x), std::memcpy(&y, want.data() + i, sizeof y);
      if (std::abs(x - y) > 0.01f * std::abs(y)) worst = 256;
    }
  }
  c_.report(most == 0 ? same : worst <= most, name, "codes at most " + std::to_string(worst) + " apart");
}

Batch::Batch(Context& c, const std::vector<Row>& rows, int block, uint32_t seed)
    : start(c, DType::kI32, {static_cast<int64_t>(rows.size()) + 1}),
      context(c, DType::kI32, {static_cast<int64_t>(rows.size())}),
      table(c, DType::kI32, {static_cast<int64_t>(rows.size()), widest(rows, block)}) {
  std::vector<int32_t> ids, s{0}, lengths;
  for (const Row& r : rows) {
    blocks += (r.context + block - 1) / block;
    s.push_back(s.back() + r.queries);
    lengths.push_back(r.context);
    longest_query = std::max(longest_query, r.queries);
    longest_context = std::max(longest_context, r.context);
  }
  ids.resize(static_cast<size_t>(blocks));
  std::iota(ids.begin(), ids.end(), 1);
  std::shuffle(ids.begin(), ids.end(), std::mt19937(seed));
  const int64_t width = table.cpu().dim[1];
  std::vector<int32_t> at(static_cast<size_t>(width) * rows.size(), 0);
  size_t next = 0;
  for (size_t r = 0; r < rows.size(); ++r) {
    for (int b = 0; b * block < rows[r].context; ++b)
      at[r * static_cast<size_t>(width) + static_cast<size_t>(b)] = ids[next++];
  }
  start.fill(s), context.fill(lengths), table.fill(at);
  tokens = s.back();
  ++blocks;  // the null block
}

Workspace::Workspace(Context& c, int tokens, int heads, int dim)
    : cpu(ops::attention_workspace(c.cpu, tokens, heads, dim) + 64, 0) {
  auto memory = c.device->allocate(ops::attention_workspace(c.gpu, tokens, heads, dim));
  if (memory.ok()) gpu = std::move(memory).value();
}

}  // namespace tern::cuda_test
