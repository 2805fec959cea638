// Host rows to device memory through two pinned buffers: while one is copied the next is filled.
#pragma once

#include <cuda_runtime.h>

#include <functional>

#include "base/error.h"
#include "device/tensor.h"

namespace tern::cuda {

// Belongs to one thread (see thread_staging).
class Staging {
 public:
  Staging() = default;
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  // Copies `source` (host, [rows, k] f32 or bf16) as type `to` into device rows of `row_elements`, the rest of each row
  // zero. Returns when everything has arrived: pack() says nothing about streams.
  Status rows(const TensorView& source, DType to, int64_t row_elements, void* dst);

  // Copies `count` pieces of `bytes` each, which fill(i, to) makes in host memory.
  Status pieces(int64_t count, int64_t bytes, const std::function<void(int64_t, char*)>& fill, void* dst);
  int ordinal() const { return ordinal_; }  // of the device that was copied to last

 private:
  Status turn();
  Status send(void* dst, int64_t bytes);
  Status arrive();
  static constexpr size_t kBytes = size_t{8} << 20;
  Status open(const void* dst);
  int ordinal_ = -1, turn_ = 0;
  char* memory_[2] = {nullptr, nullptr};
  cudaEvent_t done_[2] = {nullptr, nullptr};
  cudaStream_t stream_ = nullptr;
  void close();
};

Staging& thread_staging();

}  // namespace tern::cuda
