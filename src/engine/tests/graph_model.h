#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <vector>

#include "engine/tests/fake_model.h"
#include "engine/tests/graph_device.h"

namespace tern::engine {

// FakeModel on such a device. It sees padded steps, says what is wrong with the padding, and runs the rest.
class GraphModel final : public model::Model {
 public:
  explicit GraphModel(const FakeOptions& options) : fake_(options) {}
  const FakeModel& fake() const { return fake_; }
  const model::ModelInfo& info() const override { return fake_.info(); }
  std::vector<KvSpec> kv_specs(int block_size) const override { return fake_.kv_specs(block_size); }
  size_t workspace_bytes(const model::BatchLimits& l, device::Stream s) const override {
    return fake_.workspace_bytes(l, s);
  }
  Status forward(const model::ForwardContext& c, TensorView logits) const override {
    return GraphDevice::of(c.stream).give([this, b = c.batch, &cache = c.cache, s = c.stream, logits,
                                           of = c.communicator] { return run(b, cache, s, logits, of); });
  }

  mutable std::atomic<int> most_rows{0};   // padded
  mutable std::atomic<int> pad_tokens{0};  // seen so far
  mutable std::atomic<int> pad_rows{0};

 private:
  static Error fault(const char* what) { return make_error(ErrorCode::kInternal, fmt::format("padding: {}", what)); }

  Status run(model::Batch b, const model::KvCache& cache, device::Stream s, TensorView logits,
             const device::Communicator& of) const {
    const int32_t* start = b.row_start.as<int32_t>();
    const int64_t* slots = b.slot_mapping.as<int64_t>();
    const int block = cache.groups[0].spec.block_size;
    bool idle = true;
    for (int t = 0; t < b.tokens; ++t) idle = idle && slots[t] < block;
    if (idle) return {};
    const int tokens = b.tokens, rows = b.rows;
    most_rows = std::max(most_rows.load(), rows);
    while (b.rows > 0 && start[b.rows] == start[b.rows - 1]) {
      if (b.context_len.as<int32_t>()[--b.rows] != 0) return fault("an empty row has a context");
    }
    b.tokens = start[b.rows];
    pad_tokens += tokens - b.tokens, pad_rows += rows - b.rows;
    for (int t = b.tokens; t < tokens; ++t) {
      if (slots[t] != 0) return fault("a token is not written to the null block");
      if (b.token_ids.as<int32_t>()[t] != 0 || b.token_source.as<int32_t>()[t] != -1) return fault("an id");
      if (b.has_pictures && b.picture_row.as<int32_t>()[t] != -1) return fault("a picture row");
      for (int a = 0; a < 3; ++a) {
        if (reinterpret_cast<const int32_t*>(b.positions.row_bytes(a))[t] != 0) return fault("a position");
      }
    }
    for (int t = 0; t < b.tokens; ++t) {
      if (b.max_query_len < 1 || (b.max_query_len == 1 && start[t + 1] != t + 1)) return fault("a long row");
    }
    device::Arena none;
    return fake_.forward({b, cache, GraphDevice::of(s).cpu(), none, nullptr, of}, logits);
  }

  FakeModel fake_;
};

}  // namespace tern::engine
