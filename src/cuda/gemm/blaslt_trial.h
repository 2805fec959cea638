// What cuBLASLt's algorithms are timed with at start (blaslt.cc).
#pragma once

#include <cuda_runtime.h>

#include "cuda/gemm/gemm.h"
#include "cuda/runtime/context.h"

namespace tern::cuda {

// Operands of products that are only timed, of any content; without memory nothing is timed.
class BlasTrial {
 public:
  BlasTrial(const Gemm& g, int64_t rows, device::Stream stream) : stream_(raw(stream)) {
    const auto bytes = [&](int64_t row, bool narrow) { return static_cast<size_t>(rows * row) * (narrow ? 2 : 4); };
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    if (cudaStreamIsCapturing(stream_, &capture) != cudaSuccess || capture != cudaStreamCaptureStatusNone) return;
    ready_ = cudaEventCreateWithFlags(&begin_, cudaEventDefault) == cudaSuccess &&
             cudaEventCreateWithFlags(&end_, cudaEventDefault) == cudaSuccess &&
             cudaMalloc(&x_, bytes(g.x_row, true)) == cudaSuccess &&
             cudaMalloc(&out_, bytes(g.out_row, g.out_bf16)) == cudaSuccess &&
             cudaMemsetAsync(x_, 0x3c, bytes(g.x_row, true), stream_) == cudaSuccess;
    (void)cudaGetLastError();  // no memory is no error
  }
  ~BlasTrial() {
    for (cudaEvent_t e : {begin_, end_}) {
      if (e != nullptr) (void)cudaEventDestroy(e);
    }
    (void)cudaFree(x_), (void)cudaFree(out_);
  }
  BlasTrial(const BlasTrial&) = delete;
  BlasTrial& operator=(const BlasTrial&) = delete;

  bool ready() const { return ready_; }
  const void* x() const { return x_; }
  void* out() const { return out_; }
  // Milliseconds of kTrials calls after a first one; very many when one fails.
  template <class F>
  float time(F&& call) const {
    float ms = 1e30f;
    bool good = call() && cudaEventRecord(begin_, stream_) == cudaSuccess;
    for (int i = 0; i < kTrials; ++i) good = good && call();
    good = good && cudaEventRecord(end_, stream_) == cudaSuccess && cudaEventSynchronize(end_) == cudaSuccess &&
           cudaEventElapsedTime(&ms, begin_, end_) == cudaSuccess;
    return good ? ms : 1e30f;
  }

 private:
  static constexpr int kTrials = 2;
  cudaStream_t stream_;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
  void *x_ = nullptr, *out_ = nullptr;
  bool ready_ = false;
};

}  // namespace tern::cuda
