// A CPU device for tests to change in part.
#pragma once

#include <memory>
#include <utility>

#include "device/device.h"

namespace tern::device {

class WrappedDevice : public Device {
 public:
  explicit WrappedDevice(int threads) : cpu_(std::move(make_cpu_device({.threads = threads, .pin = false})).value()) {}
  const DeviceInfo& info() const override { return cpu_->info(); }
  Stream stream() override { return cpu_->stream(); }
  Expected<Buffer> allocate(size_t bytes) override { return cpu_->allocate(bytes); }
  Expected<Buffer> allocate_host(size_t bytes) override { return cpu_->allocate_host(bytes); }
  void copy_to_device(void* dst, const void* src, size_t bytes, Stream s) override {
    cpu_->copy_to_device(dst, src, bytes, s);
  }
  void copy_to_host(void* dst, const void* src, size_t bytes, Stream s) override {
    cpu_->copy_to_host(dst, src, bytes, s);
  }
  Status synchronize(Stream s) override { return cpu_->synchronize(s); }
  size_t memory_available() const override { return cpu_->memory_available(); }
  Stream cpu() { return cpu_->stream(); }

 private:
  std::unique_ptr<Device> cpu_;
};

}  // namespace tern::device
