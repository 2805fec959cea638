#include "ops/collective.h"

#include <algorithm>
#include <cmath>
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
bool without_gaps(const TensorView& x) { return is_rows(x) && x.rank == 2 && x.stride[0] == x.dim[1]; }
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

Status all_gather_rows(const AllGatherRowsParams& p, device::Stream stream) {
  constexpr const char* kOp = "all_gather_rows";
  const Communicator& c = p.communicator;
  TERN_OP_CHECK(kOp, fits(c), "the communicator is none of a CPU");
  TERN_OP_CHECK(kOp, p.first.size() == static_cast<size_t>(c.ranks) + 1 && p.first[0] == 0,
                "first must name the rows of each rank");
  TERN_OP_CHECK(kOp, without_gaps(p.x) && p.x.dim[0] == p.first.back(), "x must be [N, W] without gaps");
  const auto row = static_cast<int64_t>(dtype_bytes(p.x.dtype)) * p.x.dim[1];
  int64_t most = 0;
  for (size_t r = 0; r + 1 < p.first.size(); ++r) {
    TERN_OP_CHECK(kOp, p.first[r] <= p.first[r + 1], "first must not go down");
    most = std::max(most, p.first[r + 1] - p.first[r]);
  }
  if (c.alone() || most == 0) return {};
  CpuExchange& exchange = *c.cpu;
  auto* const x = static_cast<char*>(p.x.data);
  const auto rows_of = [&](int r) { return p.first[static_cast<size_t>(r)]; };
  const bool few = static_cast<size_t>(most * row) <= CpuExchange::kStageBytes;
  if (few) {
    std::memcpy(exchange.stage(c.rank), x + rows_of(c.rank) * row,
                static_cast<size_t>((rows_of(c.rank + 1) - rows_of(c.rank)) * row));
  }
  TERN_RETURN_IF_ERROR(few ? exchange.share(c.rank) : exchange.begin(c.rank, {x, 0, 0, 0}));
  for (int r = 0; r < c.ranks; ++r) {
    if (r == c.rank) continue;
    const auto* const from = few ? static_cast<const char*>(exchange.shared(c.rank, r))
                                 : static_cast<const char*>(exchange.part(r).data) + rows_of(r) * row;
    for_ranges(stream, rows_of(r + 1) - rows_of(r), row_grain(row), [&](int64_t begin, int64_t end) {
      std::memcpy(x + (rows_of(r) + begin) * row, from + begin * row, static_cast<size_t>((end - begin) * row));
    });
  }
  return few ? Status() : exchange.end(c.rank);
}

namespace {

void add_shared(const ReduceScatterParams& p, device::Stream stream) {
  if (p.shared.empty()) return;
  const int64_t h = p.out.dim[1];
  for_ranges(stream, p.out.dim[0], row_grain(h), [&](int64_t begin, int64_t end) {
    for (int64_t l = begin; l < end; ++l) {
      auto* const out = reinterpret_cast<float*>(p.out.row_bytes(l));
      const auto* const shared = reinterpret_cast<const float*>(p.shared.row_bytes(l));
      const float gate = p.shared_gate.empty() ? 1.0f : 1.0f / (1.0f + std::exp(-p.shared_gate.as<const float>()[l]));
      for (int64_t i = 0; i < h; ++i) out[i] += gate * shared[i];
    }
  });
}

}  // namespace

Status reduce_scatter(const ReduceScatterParams& p, device::Stream stream) {
  constexpr const char* kOp = "reduce_scatter";
  const Communicator& c = p.communicator;
  const int64_t n = p.x.numel(), h = p.x.dim[1], count = p.out.numel();
  TERN_OP_CHECK(kOp, fits(c), "the communicator is none of a CPU");
  TERN_OP_CHECK(kOp, p.x.dtype == DType::kF32 && without_gaps(p.x), "x must be [N, H] of float32 without gaps");
  TERN_OP_CHECK(kOp, p.out.dtype == DType::kF32 && without_gaps(p.out) && p.out.dim[1] == h,
                "out must be [L, H] of float32 without gaps");
  TERN_OP_CHECK(kOp, p.first >= 0 && p.first + p.out.dim[0] <= p.x.dim[0], "the rows lie outside x");
  TERN_OP_CHECK(kOp, p.shared.empty() || (p.shared.dtype == DType::kF32 && is_matrix(p.shared, p.out.dim[0], h)),
                "shared must be [L, H] of float32");
  TERN_OP_CHECK(kOp, p.shared_gate.empty() || is_vector(p.shared_gate, DType::kF32, p.out.dim[0]),
                "shared_gate must be [L] of float32");
  if (n == 0) return {};
  const auto* const x = p.x.as<const float>();
  const int64_t at = p.first * h;
  if (c.alone()) {
    if (count > 0) std::memcpy(p.out.data, x + at, static_cast<size_t>(count) * sizeof(float));
    add_shared(p, stream);
    return {};
  }
  CpuExchange& exchange = *c.cpu;
  const size_t bytes = static_cast<size_t>(n) * sizeof(float);
  const bool few = bytes <= CpuExchange::kStageBytes;
  if (few) std::memcpy(exchange.stage(c.rank), x, bytes);
  // Of where others read nothing is written before end().
  TERN_RETURN_IF_ERROR(few ? exchange.share(c.rank) : exchange.begin(c.rank, {p.x.data, 0, 0, 0}));
  for_ranges(stream, count, kGrain, [&](int64_t begin, int64_t end) {
    add_ranks(p.out.as<float>(), c.ranks, begin, end, [&](int r) {
      return (few ? static_cast<const float*>(exchange.shared(c.rank, r))
                  : static_cast<const float*>(exchange.part(r).data)) +
             at;
    });
  });
  add_shared(p, stream);
  return few ? Status() : exchange.end(c.rank);
}

}  // namespace tern::ops::cpu
