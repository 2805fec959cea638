// Reserved addresses of a GPU that get memory later, at the same addresses.
#include "cuda/host/range.h"

#include <vector>

#include "base/checked.h"
#include "cuda/runtime/context.h"
#include "cuda/runtime/driver.h"

namespace tern::cuda {
namespace {

Error driver_error(const char* what, CUresult code) {
  const ErrorCode kind = code == CUDA_ERROR_OUT_OF_MEMORY ? ErrorCode::kResourceExhausted : ErrorCode::kInternal;
  return make_error(kind, std::string("CUDA driver: ") + what + " failed with code " + std::to_string(code));
}

class CudaRange final : public device::AddressRange {
 public:
  CudaRange(const Driver& d, int ordinal, CUdeviceptr base, size_t bytes, size_t granularity,
            std::atomic<uint64_t>& allocations)
      : driver_(d),
        ordinal_(ordinal),
        base_(base),
        bytes_(bytes),
        granularity_(granularity),
        allocations_(allocations) {}
  ~CudaRange() override {
    size_t at = 0;
    for (const Piece& p : pieces_) {
      driver_.unmap(base_ + at, p.bytes);
      driver_.release(p.handle);
      at += p.bytes;
    }
    driver_.free_addresses(base_, bytes_);
  }
  char* base() const override { return reinterpret_cast<char*>(base_); }
  size_t reserved() const override { return bytes_; }
  size_t mapped() const override { return mapped_; }
  Status grow(size_t bytes) override;
  Status shrink(size_t bytes) override;

 private:
  struct Piece {
    CUmemGenericAllocationHandle handle;
    size_t bytes;
  };
  const Driver& driver_;
  int ordinal_;
  CUdeviceptr base_;
  size_t bytes_, granularity_, mapped_ = 0;
  std::atomic<uint64_t>& allocations_;
  std::vector<Piece> pieces_;
};

CUmemAllocationProp properties(int ordinal) {
  CUmemAllocationProp p{};
  p.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  p.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  p.location.id = ordinal;
  return p;
}

Status CudaRange::grow(size_t bytes) {
  if (bytes <= mapped_) return {};
  if (bytes > bytes_) return make_error(ErrorCode::kResourceExhausted, "more memory than addresses were reserved");
  const size_t more = round_up(bytes - mapped_, granularity_);
  const CUmemAllocationProp p = properties(ordinal_);
  Piece piece{0, more};
  ++allocations_;
  if (const CUresult r = driver_.create(&piece.handle, more, &p, 0); r != CUDA_SUCCESS) {
    return driver_error("taking memory", r);
  }
  const CUdeviceptr at = base_ + mapped_;
  if (const CUresult r = driver_.map(at, more, 0, piece.handle, 0); r != CUDA_SUCCESS) {
    driver_.release(piece.handle);
    return driver_error("mapping memory", r);
  }
  pieces_.push_back(piece);
  mapped_ += more;
  CUmemAccessDesc access{};
  access.location = p.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  if (const CUresult r = driver_.set_access(at, more, &access, 1); r != CUDA_SUCCESS) {
    return driver_error("giving access to memory", r);
  }
  // Start-up, not the step path: the default stream may be used. Other streams do not wait for it.
  cudaError_t e = cudaMemset(reinterpret_cast<void*>(at), 0, more);
  if (e == cudaSuccess) e = cudaStreamSynchronize(nullptr);
  return e == cudaSuccess ? Status() : cuda_error("clearing memory", e);
}

// Piece by piece, the last one first: a piece goes whole or stays.
Status CudaRange::shrink(size_t bytes) {
  if (pieces_.empty() || mapped_ - pieces_.back().bytes < bytes) return {};
  if (const cudaError_t e = cudaDeviceSynchronize(); e != cudaSuccess) return cuda_error("waiting for the device", e);
  while (!pieces_.empty() && mapped_ - pieces_.back().bytes >= bytes) {
    const Piece piece = pieces_.back();
    if (const CUresult r = driver_.unmap(base_ + mapped_ - piece.bytes, piece.bytes); r != CUDA_SUCCESS) {
      return driver_error("unmapping memory", r);
    }
    mapped_ -= piece.bytes;
    pieces_.pop_back();
    if (const CUresult r = driver_.release(piece.handle); r != CUDA_SUCCESS) {
      return driver_error("giving memory back", r);
    }
  }
  return {};
}

}  // namespace

Expected<std::unique_ptr<device::AddressRange>> reserve_range(int ordinal, size_t bytes,
                                                              std::atomic<uint64_t>& allocations) {
  TERN_ASSIGN_OR_RETURN(const Driver* d, driver());
  const CUmemAllocationProp p = properties(ordinal);
  size_t granularity = 0;
  if (const CUresult r = d->granularity(&granularity, &p, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED); r != CUDA_SUCCESS) {
    return driver_error("asking for the page size", r);
  }
  const auto padded = checked_add(bytes, granularity);
  if (!padded || bytes == 0) return make_error(ErrorCode::kInvalidArgument, "cannot reserve that many addresses");
  const size_t size = round_up(bytes, granularity);
  CUdeviceptr base = 0;
  if (const CUresult r = d->reserve(&base, size, 0, 0, 0); r != CUDA_SUCCESS) {
    return driver_error("reserving addresses", r);
  }
  return std::unique_ptr<device::AddressRange>(
      std::make_unique<CudaRange>(*d, ordinal, base, size, granularity, allocations));
}

}  // namespace tern::cuda
