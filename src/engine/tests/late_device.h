// A device with memory of its own that is late: work runs when it is given, as on a CPU, but events pass when the test
// lets them. It can hang and fail as GPUs do.
#pragma once

#include <atomic>
#include <memory>
#include <utility>

#include "engine/tests/graph_device.h"

namespace tern::engine {

class LateDevice final : public device::WrappedDevice {
 public:
  LateDevice() : WrappedDevice(without_graphs()) {}

  Expected<device::Buffer> allocate(size_t bytes) override {
    ++made;
    taken += bytes;
    return WrappedDevice::allocate(bytes);
  }
  size_t memory_available() const override {
    return total > 0 ? total - others - taken : WrappedDevice::memory_available();
  }
  bool own_memory() const override { return true; }
  Expected<std::unique_ptr<device::AddressRange>> reserve(size_t bytes) override {
    auto range = device::Device::reserve(bytes);
    if (!range.ok() || !full) return range;
    return std::unique_ptr<device::AddressRange>(std::make_unique<FullRange>(std::move(*range), bytes / 2));
  }
  uint64_t allocations() const override { return made; }
  Expected<std::unique_ptr<device::Event>> make_event() override {
    return std::unique_ptr<device::Event>(std::make_unique<LateEvent>(*this));
  }
  // The fault comes with the next event that is recorded.
  Status inject(device::Fault fault, device::Stream) override {
    met = fault;
    return {};
  }

  bool full = false;              // ranges get half of their memory
  std::atomic<bool> hold{false};  // events recorded do not pass
  std::atomic<int> recorded{0};
  std::atomic<device::Fault> met{device::Fault::kNone};
  std::atomic<uint64_t> made{0};
  size_t total = 0, others = 0, taken = 0;  // total > 0: memory as this device tells it

 private:
  static std::unique_ptr<device::Device> without_graphs() {
    auto device = std::make_unique<GraphDevice>();
    device->graphs = false;
    return device;
  }
  class FullRange final : public device::AddressRange {
   public:
    FullRange(std::unique_ptr<device::AddressRange> range, size_t most) : range_(std::move(range)), most_(most) {}
    char* base() const override { return range_->base(); }
    size_t reserved() const override { return range_->reserved(); }
    size_t mapped() const override { return range_->mapped(); }
    Status grow(size_t bytes) override {
      return bytes > most_ ? Status(make_error(ErrorCode::kResourceExhausted, "no memory")) : range_->grow(bytes);
    }
    Status shrink(size_t bytes) override { return range_->shrink(bytes); }

   private:
    std::unique_ptr<device::AddressRange> range_;
    size_t most_;
  };

  class LateEvent final : public device::Event {
   public:
    explicit LateEvent(LateDevice& d) : device_(d) {}
    Status record(device::Stream) override {
      fault_ = device_.met.load(), recorded_ = true;
      ++device_.recorded;
      return {};
    }
    Status wait_on(device::Stream) override { return {}; }
    Status synchronize() override {
      if (fault_ == device::Fault::kTrap) return make_error(ErrorCode::kInternal, "an illegal address");
      return {};
    }
    bool done() override { return !recorded_ || (!device_.hold && fault_ != device::Fault::kHang); }

   private:
    LateDevice& device_;
    device::Fault fault_ = device::Fault::kNone;
    bool recorded_ = false;
  };
};

}  // namespace tern::engine
