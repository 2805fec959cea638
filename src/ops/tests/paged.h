// A paged cache for tests of attention on the CPU, with an oracle in double.
#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>

#include "device/tests/kv_plain.h"
#include "ops/attention.h"
#include "ops/rope.h"
#include "ops/tests/op_test_util.h"

namespace tern::ops {

// A paged cache over random block tables, filled through qkv_prepare, and everything in plain form for the oracle.
struct Case {
  DType type = DType::kBF16;  // of activations
  int heads = 4, kv_heads = 2, dim = 64, block = 64;
  std::vector<int> context;   // of every sequence
  std::vector<int> queries;   // its last ones are asked for
  DType cache = DType::kI32;  // kI32: as activations
};

class Paged {
 public:
  Paged(const Case& c, uint32_t seed) : c_(c) {
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
      rows_.push_back(random_values(c.type, {c.context[r], (c.heads + 2 * c.kv_heads) * c.dim},
                                    seed + 7 * static_cast<uint32_t>(r)));
    }
  }

  // Scales of a quantized cache that are known before; they must outlive this.
  void set_scales(const KvScales& scales) { scales_ = scales; }
  KvLayerView cache() { return {memory_.data(), spec_.layer_block_bytes(), spec_, scales_}; }
  const TensorView& table() const { return table_.view(); }
  const Values& qkv(size_t r) const { return rows_[r]; }

  // Writes tokens [begin, end) of every sequence into the cache.
  void write(device::Stream stream) {
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

  // A value of key (part = KV head) or value (part = kv_heads + KV head) as it was written.
  double written(size_t r, int t, int part, int d) const {
    return static_cast<double>(rows_[r].get(t, (c_.heads + part) * c_.dim + d));
  }
  // The same as the quantized cache has it.
  double cached(size_t r, int t, int part, int d) const {
    const auto block = static_cast<size_t>(
        table_.view().as<const int32_t>()[static_cast<int64_t>(r) * table_.view().stride[0] + t / c_.block]);
    const char* memory = memory_.data() + block * spec_.layer_block_bytes();
    const auto token = static_cast<size_t>(t % c_.block), at = static_cast<size_t>(d);
    const bool key = part < c_.kv_heads;
    const size_t head = static_cast<size_t>(part) * static_cast<size_t>(c_.block) * static_cast<size_t>(c_.dim);
    const auto code = static_cast<uint8_t>(memory[head + device::packed_index(spec_, key, token, at)]);
    const auto* scales = reinterpret_cast<const float*>(memory + spec_.scales_offset());
    double v = code_value(spec_.dtype, code) *
               static_cast<double>(scales[static_cast<size_t>(part) * static_cast<size_t>(c_.block) + token]);
    if (scales_.channels) {
      const float* by = key ? scales_.k : scales_.v;
      v *= static_cast<double>(by[(key ? part : part - c_.kv_heads) * c_.dim + d]);
    }
    return v;
  }
  static double code_value(DType type, uint8_t code) {
    if (type == DType::kI8) return static_cast<int8_t>(code);
    const int exponent = code >> 3 & 15, mantissa = code & 7;
    const double a = exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
    return (code & 0x80) != 0 ? -a : a;
  }

  // Attention of the query at absolute position p of sequence r, head h, in double. `exact`: over what was written, not
  // what a quantized cache made of it.
  std::vector<double> oracle(size_t r, int p, int h, float scale, bool exact = false) const {
    const Values& x = rows_[r];
    const int kv = h / (c_.heads / c_.kv_heads);
    const bool codes = spec_.quantized() && !exact;
    const auto value = [&](int t, int part, int d) { return codes ? cached(r, t, part, d) : written(r, t, part, d); };
    std::vector<double> s(static_cast<size_t>(p) + 1), out(static_cast<size_t>(c_.dim), 0.0);
    double top = -1e300, sum = 0;
    for (int t = 0; t <= p; ++t) {
      double dot = 0;
      for (int d = 0; d < c_.dim; ++d) {
        dot += static_cast<double>(x.get(p, h * c_.dim + d)) * value(t, kv, d);
      }
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

 private:
  Case c_;
  KvSpec spec_;
  KvScales scales_;
  std::vector<char> memory_;
  Values table_;
  std::vector<Values> rows_;
};

// The asked-for queries of all sequences in one call.
inline Values run_attention(const Case& c, Paged& paged, device::Stream stream, DType out_type) {
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
