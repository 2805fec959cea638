// A model whose next token is a hash of the whole context, read through the paged cache: a wrong block, position, slot,
// id or picture row changes every later token, and many of them end the step with an error at once.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <span>
#include <thread>
#include <vector>

#include "engine/tests/fake_chain.h"
#include "model/model.h"

namespace tern::engine {

struct FakeOptions {
  int vocab = 97;
  int hidden = 0;                           // values of a picture row; 0: positions must count up and pictures fail
  bool deep = true;                         // verify the whole context of every row, not only the token before
  bool full_logits = true;                  // noise under every id; else only the next id differs
  int32_t nan_token = -1;                   // as last token of a context: logits are not numbers
  int32_t fail_token = -1;                  // as any token of a step: forward() fails
  int pooled = 0;                           // a pooling model of so many values
  std::atomic<int64_t>* step_ns = nullptr;  // forward() takes that long
};

class FakeModel final : public model::Model {
 public:
  explicit FakeModel(const FakeOptions& options) : o_(options) {
    info_.architecture = "Fake";
    info_.vocab_size = options.vocab;
    info_.pooled = options.pooled;
    info_.max_position_embeddings = 1 << 20;
    info_.layers = 1;
    info_.hidden_size = options.hidden;
  }

  int32_t next(uint64_t chain) const { return static_cast<int32_t>(chain % static_cast<uint64_t>(o_.vocab)); }
  // What follows `prompt`, greedily, up to `count` tokens or `eos`.
  std::vector<int32_t> continuation(const std::vector<int32_t>& prompt, int count, int32_t eos) const {
    return FakeChain::continuation(prompt, count, eos, [this](uint64_t chain) { return next(chain); });
  }

  const model::ModelInfo& info() const override { return info_; }
  std::vector<KvSpec> kv_specs(int block_size) const override {
    KvSpec s;
    s.dtype = DType::kF32, s.layers = 1, s.kv_heads = 1, s.head_dim_k = sizeof(Cell) / 4, s.block_size = block_size;
    return {s};
  }
  size_t workspace_bytes(const model::BatchLimits&, device::Stream) const override { return 64; }

  Status forward(const model::ForwardContext& c, TensorView logits) const override {
    const model::Batch& b = c.batch;
    for (int r = 0; r < b.rows; ++r) {
      if (Status ok = row(c, r); !ok.ok()) return ok;
    }
    for (int l = 0; l < b.logit_rows; ++l) {
      const int32_t t = b.logit_index.as<int32_t>()[l];
      if (t < 0 || t >= b.tokens) return fault("a logit index is out of range");
      const Cell& cell = at(c, b.slot_mapping.as<int64_t>()[t]);
      if (o_.pooled > 0) {
        pool(cell, {reinterpret_cast<float*>(logits.row_bytes(l)), static_cast<size_t>(o_.pooled)});
        continue;
      }
      fill_columns(c.communicator, o_.vocab, logits.row_bytes(l), [&](float* whole) { fill(cell, whole); });
    }
    if (o_.step_ns != nullptr) {
      if (const int64_t ns = o_.step_ns->load(); ns > 0) std::this_thread::sleep_for(std::chrono::nanoseconds(ns));
    }
    return {};
  }

 private:
  struct Cell {
    int32_t token, position;
    uint64_t chain;
  };
  static Error fault(const char* what) { return make_error(ErrorCode::kInternal, fmt::format("fake model: {}", what)); }

  Cell& at(const model::ForwardContext& c, int64_t slot) const {
    return reinterpret_cast<Cell*>(c.cache.groups[0].layers[0])[slot];
  }
  int64_t slot_of(const model::ForwardContext& c, int r, int position) const {
    const int size = c.cache.groups[0].spec.block_size;
    const auto* table = reinterpret_cast<const int32_t*>(c.batch.block_table.row_bytes(r));
    return static_cast<int64_t>(table[position / size]) * size + position % size;
  }
  Status row(const model::ForwardContext& c, int r) const {
    const model::Batch& b = c.batch;
    const int begin = b.row_start.as<int32_t>()[r], end = b.row_start.as<int32_t>()[r + 1];
    const int context = b.context_len.as<int32_t>()[r];
    if (begin < 0 || end <= begin || end > b.tokens || context < end - begin) return fault("row bounds");
    for (int t = begin; t < end; ++t) {
      const int position = context - (end - t);
      int32_t axis[3];
      for (int a = 0; a < 3; ++a) {
        axis[a] = reinterpret_cast<const int32_t*>(b.positions.row_bytes(a))[t];
        if (axis[a] != position && o_.hidden == 0) return fault("position");
      }
      std::span<const float> picture;
      if (const int32_t at = b.has_pictures ? b.picture_row.as<int32_t>()[t] : -1; at >= 0) {
        if (at >= b.pictures.dim[0] || b.pictures.dim[1] != o_.hidden) return fault("picture row");
        picture = {reinterpret_cast<const float*>(b.pictures.row_bytes(at)), static_cast<size_t>(o_.hidden)};
      }
      const int32_t token = b.token_ids.as<int32_t>()[t];
      if (token < 0 || token >= o_.vocab) return fault("token id");
      if (token == o_.fail_token) return fault("told to fail");
      const int64_t slot = b.slot_mapping.as<int64_t>()[t];
      if (slot != slot_of(c, r, position)) return fault("slot mapping and block table disagree");
      if (slot < c.cache.groups[0].spec.block_size) return fault("a row writes to the null block");
      const uint64_t before = position == 0 ? 0 : at(c, slot_of(c, r, position - 1)).chain;
      const int32_t what = FakeChain::seen(token, position, axis, picture);
      at(c, slot) = {what, position, FakeChain::mix(before, what, position)};
    }
    return o_.deep ? verify(c, r, context) : Status{};
  }
  Status verify(const model::ForwardContext& c, int r, int context) const {
    uint64_t chain = 0;
    for (int p = 0; p < context; ++p) {
      const Cell& cell = at(c, slot_of(c, r, p));
      chain = FakeChain::mix(chain, cell.token, p);
      if (cell.position != p || cell.chain != chain) return fault("the context in the cache is not this sequence's");
    }
    return {};
  }
  void pool(const Cell& cell, std::span<float> row) const {
    FakeChain::pool(cell.chain, row);
    if (cell.token == o_.nan_token) row.back() = std::numeric_limits<float>::quiet_NaN();
  }
  void fill(const Cell& cell, float* x) const {
    const float base = cell.token == o_.nan_token || cell.chain == FakeChain::kNanChain
                           ? std::numeric_limits<float>::quiet_NaN()
                           : 0.0f;
    uint64_t noise = cell.chain;
    for (int i = 0; i < o_.vocab; ++i) {
      if (o_.full_logits) noise = noise * 6364136223846793005ull + 1442695040888963407ull;
      x[i] = base + (o_.full_logits ? static_cast<float>(noise >> 40) * (3.0f / (1 << 24)) : 0.0f);
    }
    x[next(cell.chain)] += 3.5f;
  }

  FakeOptions o_;
  model::ModelInfo info_;
};

}  // namespace tern::engine
