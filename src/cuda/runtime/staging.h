// Host rows to device memory through two pinned buffers: while one is copied the next is filled.
#pragma once

#include <cuda_runtime.h>

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

 private:
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
