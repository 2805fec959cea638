#include "cuda/runtime/staging.h"

#include <algorithm>
#include <cstring>

#include "base/bf16.h"
#include "cuda/runtime/context.h"

namespace tern::cuda {
namespace {

void convert_row(const char* from, DType type, char* to, DType wanted, int64_t k, int64_t padded) {
  const auto bytes = static_cast<int64_t>(dtype_bytes(wanted));
  if (type == wanted) {
    std::memcpy(to, from, static_cast<size_t>(k * bytes));
  } else if (wanted == DType::kBF16) {
    for (int64_t i = 0; i < k; ++i) reinterpret_cast<bf16*>(to)[i] = to_bf16(reinterpret_cast<const float*>(from)[i]);
  } else {
    for (int64_t i = 0; i < k; ++i) reinterpret_cast<float*>(to)[i] = to_float(reinterpret_cast<const bf16*>(from)[i]);
  }
  std::memset(to + k * bytes, 0, static_cast<size_t>((padded - k) * bytes));
}

}  // namespace

Staging& thread_staging() {
  thread_local Staging staging;
  return staging;
}

Staging::~Staging() { close(); }

void Staging::close() {
  for (int i = 0; i < 2; ++i) {
    if (done_[i] != nullptr) (void)cudaEventDestroy(done_[i]);
    if (memory_[i] != nullptr) (void)cudaFreeHost(memory_[i]);
    done_[i] = nullptr, memory_[i] = nullptr;
  }
  if (stream_ != nullptr) (void)cudaStreamDestroy(stream_);
  stream_ = nullptr, ordinal_ = -1;
}

Status Staging::open(const void* dst) {
  cudaPointerAttributes where{};
  if (const cudaError_t e = cudaPointerGetAttributes(&where, dst); e != cudaSuccess) return cuda_error("pack", e);
  if (where.type != cudaMemoryTypeDevice) {
    return make_error(ErrorCode::kInvalidArgument, "pack: the packed buffer is not device memory");
  }
  if (const cudaError_t e = cudaSetDevice(where.device); e != cudaSuccess) return cuda_error("pack", e);
  if (ordinal_ == where.device) return {};
  close();
  cudaError_t e = cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking);
  for (int i = 0; i < 2 && e == cudaSuccess; ++i) {
    e = cudaMallocHost(reinterpret_cast<void**>(&memory_[i]), kBytes);
    if (e == cudaSuccess) e = cudaEventCreateWithFlags(&done_[i], cudaEventDisableTiming);
  }
  if (e != cudaSuccess) return cuda_error("pinned memory for weights", e);
  ordinal_ = where.device;
  return {};
}

Status Staging::rows(const TensorView& source, DType to, int64_t row_elements, void* dst) {
  if (Status s = open(dst); !s.ok()) return s;
  const int64_t row = row_elements * static_cast<int64_t>(dtype_bytes(to));
  const int64_t per_turn = static_cast<int64_t>(kBytes) / row;
  if (per_turn == 0) return make_error(ErrorCode::kUnsupported, "pack: a weight row is longer than 8 MiB");
  for (int64_t r = 0; r < source.dim[0]; r += per_turn) {
    const int64_t count = std::min(per_turn, source.dim[0] - r);
    TERN_RETURN_IF_ERROR(turn());
    for (int64_t i = 0; i < count; ++i) {
      convert_row(source.row_bytes(r + i), source.dtype, memory_[turn_] + i * row, to, source.dim[1], row_elements);
    }
    TERN_RETURN_IF_ERROR(send(static_cast<char*>(dst) + r * row, count * row));
  }
  return arrive();
}

Status Staging::pieces(int64_t count, int64_t bytes, const std::function<void(int64_t, char*)>& fill, void* dst) {
  TERN_RETURN_IF_ERROR(open(dst));
  const int64_t per_turn = static_cast<int64_t>(kBytes) / bytes;
  if (per_turn == 0) return make_error(ErrorCode::kUnsupported, "pack: 16 rows of a weight are longer than 8 MiB");
  for (int64_t at = 0; at < count; at += per_turn) {
    const int64_t here = std::min(per_turn, count - at);
    TERN_RETURN_IF_ERROR(turn());
    for (int64_t i = 0; i < here; ++i) fill(at + i, memory_[turn_] + i * bytes);
    TERN_RETURN_IF_ERROR(send(static_cast<char*>(dst) + at * bytes, here * bytes));
  }
  return arrive();
}

// Waits until the buffer whose turn it is has been copied.
Status Staging::turn() {
  const cudaError_t e = cudaEventSynchronize(done_[turn_]);
  return e == cudaSuccess ? Status() : cuda_error("weight upload", e);
}

Status Staging::send(void* dst, int64_t bytes) {
  cudaError_t e = cudaMemcpyAsync(dst, memory_[turn_], static_cast<size_t>(bytes), cudaMemcpyHostToDevice, stream_);
  if (e == cudaSuccess) e = cudaEventRecord(done_[turn_], stream_);
  if (e != cudaSuccess) return cuda_error("weight upload", e);
  turn_ ^= 1;
  return {};
}

Status Staging::arrive() {
  const cudaError_t e = cudaStreamSynchronize(stream_);
  return e == cudaSuccess ? Status() : cuda_error("weight upload", e);
}

}  // namespace tern::cuda
