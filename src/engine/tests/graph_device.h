// A device with memory of its own and graphs, on the CPU: work given while a capture is open is kept as closures. Its
// ops are the CPU's.
#pragma once

#include <cstring>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "device/tests/wrapped_device.h"
#include "engine/tests/fake_model.h"
#include "ops/backend.h"

namespace tern::engine {

class GraphDevice final : public device::WrappedDevice {
 public:
  using Work = std::function<Status()>;

  GraphDevice() : WrappedDevice(1), info_(WrappedDevice::info()) {
    info_.kind = device::DeviceKind::kCuda;
    register_ops();
  }
  static GraphDevice& of(device::Stream s) { return *static_cast<GraphDevice*>(s.native); }

  const device::DeviceInfo& info() const override { return info_; }
  device::Stream stream() override { return {device::DeviceKind::kCuda, nullptr, this}; }
  device::Stream cpu() { return inner().stream(); }
  void copy_to_device(void* dst, const void* src, size_t bytes, device::Stream) override {
    (void)give([=] {
      std::memcpy(dst, src, bytes);
      return Status();
    });
  }
  void copy_to_host(void* dst, const void* src, size_t bytes, device::Stream s) override {
    copy_to_device(dst, src, bytes, s);
  }
  Status synchronize(device::Stream) override {
    if (capturing_) return make_error(ErrorCode::kInternal, "a wait inside a capture");
    return {};
  }
  bool own_memory() const override { return true; }
  bool has_graphs() const override { return graphs; }
  Status copy_in_turn(const std::array<std::span<const device::CopySpan>, 2>& sets, const device::HostTurn& turn,
                      device::Stream) override {
    std::array<std::vector<device::CopySpan>, 2> kept;
    for (size_t i = 0; i < 2; ++i) kept[i].assign(sets[i].begin(), sets[i].end());
    return give([kept, turn] {
      for (const device::CopySpan& p : kept[static_cast<size_t>(*turn.turn)]) {
        for (size_t r = 0; r < p.rows; ++r) {
          std::memcpy(static_cast<char*>(p.dst) + r * p.dst_stride, static_cast<const char*>(p.src) + r * p.src_stride,
                      p.bytes);
        }
      }
      if (turn.passes) *turn.turn = 1 - *turn.turn;
      return Status();
    });
  }
  Status begin_capture(device::Stream) override {
    capturing_ = true;
    return {};
  }
  Expected<std::unique_ptr<device::Graph>> end_capture(device::Stream) override {
    capturing_ = false;
    if (refuse_captures) return make_error(ErrorCode::kResourceExhausted, "no room for a graph");
    ++captured;
    return std::unique_ptr<device::Graph>(std::make_unique<Recorded>(*this, std::exchange(kept_, {})));
  }

  Status give(Work work) {
    if (!capturing_) return work();
    kept_.push_back(std::move(work));
    return {};
  }

  bool graphs = true;
  bool refuse_captures = false;
  int captured = 0;
  std::atomic<int> launched{0};

 private:
  struct Recorded final : device::Graph {
    Recorded(GraphDevice& d, std::vector<Work> w) : device(d), work(std::move(w)) {}
    Status launch(device::Stream) override {
      ++device.launched;
      for (const Work& w : work) TERN_RETURN_IF_ERROR(w());
      return {};
    }
    GraphDevice& device;
    std::vector<Work> work;
  };

  template <auto kOp, class P>
  static Status op(const P& p, device::Stream s) {
    GraphDevice& d = of(s);
    return d.give([p, &d] { return kOp(p, d.cpu()); });
  }
  static Status reset(const ops::SlotArrays& slots, int slot, device::Stream s) {
    return ops::slot_reset(slots, slot, of(s).cpu());
  }
  static size_t room(device::Stream s, int64_t vocab) { return ops::sample_workspace(of(s).cpu(), vocab); }

  static void register_ops() {
    static const ops::Backend backend = [] {
      ops::Backend b;
      b.resolve_ids = op<ops::resolve_ids, ops::ResolveIdsParams>;
      b.scatter_rows = op<ops::scatter_rows, ops::ScatterRowsParams>;
      b.logit_mask = op<ops::logit_mask, ops::LogitMaskParams>;
      b.logit_bias = op<ops::logit_bias, ops::LogitsParams>;
      b.logit_min_tokens = op<ops::logit_min_tokens, ops::LogitsParams>;
      b.logit_penalties = op<ops::logit_penalties, ops::LogitsParams>;
      b.logit_bad_words = op<ops::logit_bad_words, ops::LogitsParams>;
      b.sample = op<ops::sample, ops::SampleParams>;
      b.token_logprobs = op<ops::token_logprobs, ops::LogprobParams>;
      b.thinking_force = op<ops::thinking_force, ops::LogitsParams>;
      b.thinking_advance = op<ops::thinking_advance, ops::ThinkingParams>;
      b.capture_logits = op<ops::capture_logits, ops::CaptureParams>;
      b.slot_mark = op<ops::slot_mark, ops::SlotMarkParams>;
      b.slot_reset = reset, b.sample_workspace = room;
      return b;
    }();
    ops::register_backend(device::DeviceKind::kCuda, &backend);
  }

  device::DeviceInfo info_;
  bool capturing_ = false;
  std::vector<Work> kept_;
};

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
    return GraphDevice::of(c.stream).give(
        [this, b = c.batch, &cache = c.cache, s = c.stream, logits] { return run(b, cache, s, logits); });
  }

  mutable std::atomic<int> most_rows{0};   // padded
  mutable std::atomic<int> pad_tokens{0};  // seen so far
  mutable std::atomic<int> pad_rows{0};

 private:
  static Error fault(const char* what) { return make_error(ErrorCode::kInternal, fmt::format("padding: {}", what)); }

  Status run(model::Batch b, const model::KvCache& cache, device::Stream s, TensorView logits) const {
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
    return fake_.forward({b, cache, GraphDevice::of(s).cpu(), none, nullptr}, logits);
  }

  FakeModel fake_;
};

}  // namespace tern::engine
