// An array the host fills and the device reads (or the other way round) at a fixed address.
#pragma once

#include <cstdint>
#include <utility>

#include "base/error.h"
#include "device/device.h"

namespace tern::sample {

// Host and device side of [n] values of T. Where the device's memory is the host's (CPU), both are one buffer and
// nothing is copied.
template <class T>
class Staged {
 public:
  static Expected<Staged> create(int64_t n, device::Device& device) {
    Staged s;
    const size_t bytes = static_cast<size_t>(n > 0 ? n : 1) * sizeof(T);
    TERN_ASSIGN_OR_RETURN(s.host_, device.allocate_host(bytes));
    s.shared_ = device.info().kind == device::DeviceKind::kCpu;
    if (!s.shared_) {
      TERN_ASSIGN_OR_RETURN(s.device_, device.allocate(bytes));
    }
    s.size_ = n;
    return s;
  }

  T* host() const { return reinterpret_cast<T*>(host_.data()); }
  T* device() const { return reinterpret_cast<T*>(shared_ ? host_.data() : device_.data()); }
  int64_t size() const { return size_; }
  T& operator[](int64_t i) const { return host()[i]; }

  void upload(int64_t n, device::Device& d, device::Stream stream) const {
    if (!shared_ && n > 0) d.copy_to_device(device(), host(), static_cast<size_t>(n) * sizeof(T), stream);
  }
  void download(int64_t n, device::Device& d, device::Stream stream) const {
    if (!shared_ && n > 0) d.copy_to_host(host(), device(), static_cast<size_t>(n) * sizeof(T), stream);
  }

 private:
  device::Buffer host_, device_;
  bool shared_ = true;
  int64_t size_ = 0;
};

}  // namespace tern::sample
