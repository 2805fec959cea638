#include "ops/collective.h"

#include <algorithm>
#include <cstring>

#include "device/cpu_exchange.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/op_check.h"

namespace tern::ops::cpu {
namespace {

using device::Communicator;
using device::CpuExchange;

// Values worth handing to another thread, and of a cache line: ranks write beside each other.
constexpr int64_t kGrain = 16384, kLine = 16;

// out = ((a_0 + a_1) + a_2) + ... over [begin, end).
template <class Of>
void add_ranks(float* out, int ranks, int64_t begin, int64_t end, Of&& of) {
  const float *const a = of(0), *const b = of(1);
  for (int64_t i = begin; i < end; ++i) out[i] = a[i] + b[i];
  for (int r = 2; r < ranks; ++r) {
    const float* const more = of(r);
    for (int64_t i = begin; i < end; ++i) out[i] += more[i];
  }
}

// Few values: everybody reads what all have brought.
Status reduce_at_once(const Communicator& c, float* x, int64_t n, device::Stream stream) {
  CpuExchange& exchange = *c.cpu;
  std::memcpy(exchange.stage(c.rank), x, static_cast<size_t>(n) * sizeof(float));
  TERN_RETURN_IF_ERROR(exchange.share(c.rank));
  for_ranges(stream, n, kGrain, [&](int64_t begin, int64_t end) {
    add_ranks(x, c.ranks, begin, end, [&](int r) { return static_cast<const float*>(exchange.shared(c.rank, r)); });
  });
  return {};
}

// Many: each rank adds up its part of them and writes the sum to all.
Status reduce_by_parts(const Communicator& c, float* x, int64_t n, device::Stream stream) {
  CpuExchange& exchange = *c.cpu;
  TERN_RETURN_IF_ERROR(exchange.begin(c.rank, {x, 0, 0, 0}));
  const auto of = [&](int r) { return static_cast<float*>(exchange.part(r).data); };
  const int64_t lines = (n + kLine - 1) / kLine;
  const int64_t mine = lines * c.rank / c.ranks * kLine, next = std::min(n, lines * (c.rank + 1) / c.ranks * kLine);
  for_ranges(stream, next - mine, kGrain, [&](int64_t begin, int64_t end) {
    alignas(64) float sum[1024];
    for (int64_t at = mine + begin; at < mine + end;) {
      const int64_t count = std::min<int64_t>(mine + end - at, 1024);
      add_ranks(sum, c.ranks, 0, count, [&](int r) { return of(r) + at; });
      for (int r = 0; r < c.ranks; ++r) std::memcpy(of(r) + at, sum, static_cast<size_t>(count) * sizeof(float));
      at += count;
    }
  });
  return exchange.end(c.rank);
}

bool fits(const Communicator& c) { return c.alone() || (c.cpu != nullptr && c.rank >= 0 && c.rank < c.ranks); }
int owner_of(const int32_t* owner, int64_t row) { return owner == nullptr ? 0 : owner[row]; }

}  // namespace

Status all_reduce(const AllReduceParams& p, device::Stream stream) {
  constexpr const char* kOp = "all_reduce";
  const Communicator& c = p.communicator;
  const int64_t n = p.x.numel();
  TERN_OP_CHECK(kOp, fits(c), "the communicator is none of a CPU");
  TERN_OP_CHECK(kOp, p.x.dtype == DType::kF32 && is_rows(p.x) && p.x.stride[0] * p.x.dim[0] == n,
                "x must be [T, H] of float32 without gaps");
  if (c.alone() || n == 0) return {};
  const bool few = static_cast<size_t>(n) * sizeof(float) <= CpuExchange::kStageBytes;
  return few ? reduce_at_once(c, p.x.as<float>(), n, stream) : reduce_by_parts(c, p.x.as<float>(), n, stream);
}

Status all_to_all(const AllToAllParams& p, device::Stream stream) {
  constexpr const char* kOp = "all_to_all";
  const Communicator& c = p.communicator;
  const int64_t rows = p.x.dim[0];
  TERN_OP_CHECK(kOp, fits(c), "the communicator is none of a CPU");
  TERN_OP_CHECK(kOp, p.x.dtype == DType::kF32 && p.x.rank == 2 && is_rows(p.x), "x must be [L, W] of float32");
  if (rows == 0) return {};
  const int64_t row = p.x.stride[0], first = p.first;
  TERN_RETURN_IF_ERROR(c.alone() ? Status() : c.cpu->begin(c.rank, {p.x.data, p.x.dim[1], row, first}));
  const auto take = [&](int64_t begin, int64_t end) {
    for (int64_t l = begin; l < end; ++l) {
      if (owner_of(p.owner, l) != c.rank) continue;
      for (int r = 0; r < c.ranks; ++r) {
        const CpuExchange::Part part = c.alone() ? CpuExchange::Part{p.x.data, p.x.dim[1], row, first} : c.cpu->part(r);
        std::memcpy(reinterpret_cast<float*>(p.out.row_bytes(l)) + part.first,
                    static_cast<const float*>(part.data) + l * part.stride,
                    static_cast<size_t>(part.columns) * sizeof(float));
      }
    }
  };
  Status fault;
  if (!p.out.empty() && (p.out.dtype != DType::kF32 || !is_matrix(p.out, rows, p.out.dim[1]))) {
    fault = op_error(kOp, "out must be [L, V] of float32");
  } else if (!p.out.empty()) {
    for_ranges(stream, rows, row_grain(p.out.dim[1]), take);
  }
  if (Status ended = c.alone() ? Status() : c.cpu->end(c.rank); fault.ok()) fault = ended;
  return fault;
}

Status all_gather(const AllGatherParams& p, device::Stream) {
  constexpr const char* kOp = "all_gather";
  const Communicator& c = p.communicator;
  const int64_t n = p.x.dim[0];
  TERN_OP_CHECK(kOp, fits(c), "the communicator is none of a CPU");
  TERN_OP_CHECK(kOp, is_vector(p.x, DType::kI32, n) || is_vector(p.x, DType::kF32, n), "x must be [L] of 4 bytes each");
  if (c.alone()) return {};
  auto* const x = p.x.as<int32_t>();
  // In pieces that fit where ranks read what others brought.
  constexpr int64_t kPiece = CpuExchange::kStageBytes / sizeof(int32_t);
  for (int64_t begin = 0; begin < n; begin += kPiece) {
    const int64_t count = std::min(kPiece, n - begin);
    std::memcpy(c.cpu->stage(c.rank), x + begin, static_cast<size_t>(count) * sizeof(int32_t));
    TERN_RETURN_IF_ERROR(c.cpu->share(c.rank));
    for (int64_t l = begin; l < begin + count; ++l) {
      x[l] = static_cast<const int32_t*>(c.cpu->shared(c.rank, owner_of(p.owner, l)))[l - begin];
    }
  }
  return {};
}

}  // namespace tern::ops::cpu
