// A paged cache for tests of attention on the CPU, with an oracle in double.
#pragma once

#include <vector>

#include "ops/attention.h"
#include "ops/tests/op_test_util.h"

namespace tern::ops {

struct Case {
  DType type = DType::kBF16;  // of activations
  int heads = 4, kv_heads = 2, dim = 64, block = 64;
  std::vector<int> context;   // of every sequence
  std::vector<int> queries;   // its last ones are asked for
  DType cache = DType::kI32;  // kI32: as activations
};

// Over random block tables, filled through qkv_prepare, and everything in plain form for the oracle.
class Paged {
 public:
  Paged(const Case& c, uint32_t seed);
  // Scales of a quantized cache that are known before; they must outlive this.
  void set_scales(const KvScales& scales) { scales_ = scales; }
  KvLayerView cache() { return {memory_.data(), spec_.layer_block_bytes(), spec_, scales_}; }
  const TensorView& table() const { return table_.view(); }
  const Values& qkv(size_t r) const { return rows_[r]; }

  // Writes all tokens of every sequence into the cache.
  void write(device::Stream stream);

  // A value of key (part = KV head) or value (part = kv_heads + KV head) as it was written.
  double written(size_t r, int t, int part, int d) const {
    return static_cast<double>(rows_[r].get(t, (c_.heads + part) * c_.dim + d));
  }
  // The same as the quantized cache has it.
  double cached(size_t r, int t, int part, int d) const;
  // Attention of the query at absolute position p of sequence r, head h, in double. `exact`: over what was written, not
  // what a quantized cache made of it.
  std::vector<double> oracle(size_t r, int p, int h, float scale, bool exact = false) const;

 private:
  Case c_;
  KvSpec spec_;
  KvScales scales_;
  std::vector<char> memory_;
  Values table_;
  std::vector<Values> rows_;
};

// The asked-for queries of all sequences in one call.
Values run_attention(const Case& c, Paged& paged, device::Stream stream, DType out_type);

}  // namespace tern::ops
