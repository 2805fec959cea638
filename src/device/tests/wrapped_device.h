// A device for tests to change in part: a CPU, or another of theirs.
#pragma once

#include <memory>
#include <utility>

#include "device/device.h"

namespace tern::device {

class WrappedDevice : public Device {
 public:
  explicit WrappedDevice(std::unique_ptr<Device> inner) : inner_(std::move(inner)) {}
  explicit WrappedDevice(int threads) : WrappedDevice(make_cpu_device({.threads = threads, .pin = false}).value()) {}
  const DeviceInfo& info() const override { return inner_->info(); }
  Stream stream() override { return inner_->stream(); }
  Expected<Buffer> allocate(size_t bytes) override { return inner_->allocate(bytes); }
  Expected<Buffer> allocate_host(size_t bytes) override { return inner_->allocate_host(bytes); }
  void copy_to_device(void* dst, const void* src, size_t bytes, Stream s) override {
    inner_->copy_to_device(dst, src, bytes, s);
  }
  void copy_to_host(void* dst, const void* src, size_t bytes, Stream s) override {
    inner_->copy_to_host(dst, src, bytes, s);
  }
  Status synchronize(Stream s) override { return inner_->synchronize(s); }
  size_t memory_available() const override { return inner_->memory_available(); }

 protected:
  Device& inner() { return *inner_; }

 private:
  std::unique_ptr<Device> inner_;
};

}  // namespace tern::device
