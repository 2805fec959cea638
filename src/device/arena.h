// A bump allocator over one buffer: a step's temporaries. Reset between steps, never grows on the step path.
#pragma once

#include <cstddef>

#include "base/check.h"
#include "base/checked.h"
#include "device/device.h"
#include "device/tensor.h"

namespace tern::device {

class Arena {
 public:
  Arena() = default;
  // A null `base` measures: allocations return null and only `peak` counts.
  Arena(void* base, size_t bytes) : base_(static_cast<char*>(base)), bytes_(bytes) {}

  void* take(size_t bytes) {
    const size_t begin = used_;
    used_ += round_up<size_t>(bytes, 64);
    if (used_ > peak_) peak_ = used_;
    if (base_ == nullptr) return nullptr;
    TERN_CHECK_MSG(used_ <= bytes_, "workspace is too small");
    return base_ + begin;
  }
  TensorView tensor(DType t, int64_t rows, int64_t cols) {
    return tensor2(take(static_cast<size_t>(rows * cols) * dtype_bytes(t)), t, rows, cols);
  }
  TensorView tensor(DType t, int64_t n) { return tensor1(take(static_cast<size_t>(n) * dtype_bytes(t)), t, n); }
  // Marks nest: release(mark()) gives back what was taken since.
  size_t mark() const { return used_; }
  void release(size_t mark) { used_ = mark; }
  size_t peak() const { return peak_; }
  size_t left() const { return bytes_ - used_; }
  bool measuring() const { return base_ == nullptr; }

 private:
  char* base_ = nullptr;
  size_t bytes_ = 0, used_ = 0, peak_ = 0;
};

}  // namespace tern::device
