#include "ops/tests/paged.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "device/tests/kv_plain.h"
#include "ops/rope.h"

namespace tern::ops {
namespace {

double code_value(DType type, uint8_t code) {
  if (type == DType::kI8) return static_cast<int8_t>(code);
  const int exponent = code >> 3 & 15, mantissa = code & 7;
  const double a = exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
  return (code & 0x80) != 0 ? -a : a;
}

}  // namespace

Paged::Paged(const Case& c, uint32_t seed) : c_(c) {
  spec_.arrangement = KvArrangement::kCpuPacked;
  spec_.dtype = c.cache == DType::kI32 ? c.type : c.cache;
  spec_.layers = 1;
  spec_.kv_heads = c.kv_heads;
  spec_.head_dim_k = spec_.head_dim_v = c.dim;
  spec_.block_size = c.block;
  int total = 0, most = 1;
  for (const int n : c.context) {
    total += (n + c.block - 1) / c.block;
    most = std::max(most, (n + c.block - 1) / c.block);
  }
  std::vector<int32_t> ids(static_cast<size_t>(total));
  std::iota(ids.begin(), ids.end(), 1);
  std::shuffle(ids.begin(), ids.end(), std::mt19937(seed));
  // Unused slots hold NaN: what lies beyond a context must not matter.
  memory_.assign((static_cast<size_t>(total) + 1) * spec_.layer_block_bytes(), static_cast<char>(0xff));
  table_ = Values(DType::kI32, {static_cast<int64_t>(c.context.size()), most});
  size_t next = 0;
  for (size_t r = 0; r < c.context.size(); ++r) {
    for (int b = 0; b * c.block < c.context[r]; ++b) table_.at<int32_t>(static_cast<int64_t>(r), b) = ids[next++];
    rows_.push_back(
        random_values(c.type, {c.context[r], (c.heads + 2 * c.kv_heads) * c.dim}, seed + 7 * static_cast<uint32_t>(r)));
  }
}

void Paged::write(device::Stream stream) {
  for (size_t r = 0; r < rows_.size(); ++r) {
    std::vector<int64_t> slots;
    for (int p = 0; p < c_.context[r]; ++p) {
      slots.push_back(int64_t{table_.at<int32_t>(static_cast<int64_t>(r), p / c_.block)} * c_.block + p % c_.block);
    }
    const Values slot = slot_values(slots);
    QkvPrepareParams p;
    p.qkv = rows_[r].view();
    p.heads = c_.heads, p.kv_heads = c_.kv_heads, p.head_dim = c_.dim;
    p.cache = cache();
    p.slot_mapping = slot.view();
    Values q(c_.type, {c_.context[r], c_.heads * c_.dim});
    if (spec_.quantized()) p.q = q.view();
    const Status s = qkv_prepare(p, stream);
    ASSERT_TRUE(s.ok()) << s.error().message;
  }
}

double Paged::cached(size_t r, int t, int part, int d) const {
  const auto size = static_cast<size_t>(c_.block), dim = static_cast<size_t>(c_.dim), head = static_cast<size_t>(part);
  const auto* row = reinterpret_cast<const int32_t*>(table_.view().row_bytes(static_cast<int64_t>(r)));
  const char* memory = memory_.data() + static_cast<size_t>(row[t / c_.block]) * spec_.layer_block_bytes();
  const auto token = static_cast<size_t>(t % c_.block);
  const bool key = part < c_.kv_heads;
  const size_t at = head * size * dim + device::packed_index(spec_, key, token, static_cast<size_t>(d));
  const auto* scales = reinterpret_cast<const float*>(memory + spec_.scales_offset());
  double v =
      code_value(spec_.dtype, static_cast<uint8_t>(memory[at])) * static_cast<double>(scales[head * size + token]);
  if (scales_.channels) {
    const float* by = key ? scales_.k : scales_.v;
    v *= static_cast<double>(by[(key ? part : part - c_.kv_heads) * c_.dim + d]);
  }
  return v;
}

std::vector<double> Paged::oracle(size_t r, int p, int h, float scale, bool exact) const {
  const Values& x = rows_[r];
  const int kv = h / (c_.heads / c_.kv_heads);
  const bool codes = spec_.quantized() && !exact;
  const auto value = [&](int t, int part, int d) { return codes ? cached(r, t, part, d) : written(r, t, part, d); };
  std::vector<double> s(static_cast<size_t>(p) + 1), out(static_cast<size_t>(c_.dim), 0.0);
  double top = -1e300, sum = 0;
  for (int t = 0; t <= p; ++t) {
    double dot = 0;
    for (int d = 0; d < c_.dim; ++d) dot += static_cast<double>(x.get(p, h * c_.dim + d)) * value(t, kv, d);
    s[static_cast<size_t>(t)] = dot * static_cast<double>(scale);
    top = std::max(top, s[static_cast<size_t>(t)]);
  }
  for (double& v : s) sum += v = std::exp(v - top);
  for (int t = 0; t <= p; ++t) {
    for (int d = 0; d < c_.dim; ++d) {
      out[static_cast<size_t>(d)] += s[static_cast<size_t>(t)] / sum * value(t, c_.kv_heads + kv, d);
    }
  }
  return out;
}

Values run_attention(const Case& c, Paged& paged, device::Stream stream, DType out_type) {
  std::vector<int32_t> start{0}, context;
  for (size_t r = 0; r < c.queries.size(); ++r) {
    start.push_back(start.back() + c.queries[r]);
    context.push_back(c.context[r]);
  }
  Values q(c.type, {start.back(), c.heads, c.dim}, 8), out(out_type, {start.back(), c.heads * c.dim});
  for (size_t r = 0; r < c.queries.size(); ++r) {
    for (int i = 0; i < c.queries[r]; ++i) {
      if (c.context[r] == 0) continue;  // a padding row
      std::memcpy(q.view().row_bytes(start[r] + i), paged.qkv(r).view().row_bytes(c.context[r] - c.queries[r] + i),
                  static_cast<size_t>(c.heads * c.dim) * dtype_bytes(c.type));
    }
  }
  const Values starts = int_values(start), contexts = int_values(context);
  AttentionParams p;
  p.q = q.view();
  p.cache = paged.cache();
  p.block_table = paged.table();
  p.row_start = starts.view();
  p.context_len = contexts.view();
  p.out = out.view();
  p.scale = 1.0f / std::sqrt(static_cast<float>(c.dim));
  std::vector<char> workspace(attention_workspace(stream, start.back(), c.heads, c.dim) + 64);
  p.workspace = workspace.data() + (64 - reinterpret_cast<uintptr_t>(workspace.data()) % 64) % 64;
  const Status s = attention(p, stream);
  EXPECT_TRUE(s.ok()) << (s.ok() ? "" : s.error().message);
  return out;
}

}  // namespace tern::ops
