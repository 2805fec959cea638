// A device with memory of its own and graphs, on the CPU: work given while a capture is open is kept as closures. Its
// ops are the CPU's.
#pragma once

#include <cstring>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "device/tests/wrapped_device.h"
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
      b.draw_facts = op<ops::draw_facts, ops::DrawFactsParams>;
      b.slot_mark = op<ops::slot_mark, ops::SlotMarkParams>;
      b.all_to_all = op<ops::all_to_all, ops::AllToAllParams>;
      b.all_gather = op<ops::all_gather, ops::AllGatherParams>;
      b.slot_reset = reset, b.sample_workspace = room;
      return b;
    }();
    ops::register_backend(device::DeviceKind::kCuda, &backend);
  }

  device::DeviceInfo info_;
  bool capturing_ = false;
  std::vector<Work> kept_;
};

}  // namespace tern::engine
