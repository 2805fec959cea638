// Mixture of experts: sort rows by expert.
#include "cuda/cuda_ops.h"
#include "cuda/kernel_util.cuh"
#include "cuda/launch.cuh"
#include "cuda/moe_sort.h"
#include "ops/op_check.h"

namespace tern::cuda {
namespace {

constexpr int kSortThreads = 512, kSortWarps = kSortThreads / 32;

// Rows of 16-byte words that the sort itself moves. x null: it does not.
struct RowMove {
  const char* x = nullptr;
  int64_t x_stride = 0;  // bytes
  char* out = nullptr;
  int64_t out_stride = 0;
  int words = 0;
};
constexpr int64_t kMovedPairs = 2048;  // more are spread by a kernel of their own

// A block per expert: counts the pairs of lower experts, which is where its rows begin, and numbers its own pairs in
// order of tokens. Each warp has one run of pairs, so that the block meets only once.
__global__ void __launch_bounds__(kSortThreads)
    sort_kernel(Rows<const int32_t> ids, int top_k, int64_t pairs, int experts, int32_t* offsets, Rows<int32_t> row_of,
                const RowMove move) {
  __shared__ int lower[kSortWarps], own[kSortWarps];
  let_next_start();
  wait_for_previous();
  const int e = blockIdx.x, lane = threadIdx.x & 31, warp = threadIdx.x / 32;
  const auto count = static_cast<int>(pairs);
  const bool flat = ids.stride == top_k;
  const auto expert = [&](int i) { return flat ? ids.data[i] : ids.row(i / top_k)[i % top_k]; };
  const int run = (count + kSortThreads - 1) / kSortThreads * 32;
  const int begin = min(count, warp * run), end = min(count, begin + run);
  int below = 0, mine = 0;
#pragma unroll 4
  for (int i = begin + lane; i < end; i += 32) {
    const int id = expert(i);
    below += id < e, mine += id == e;
  }
  below = __reduce_add_sync(0xffffffffu, below), mine = __reduce_add_sync(0xffffffffu, mine);
  if (lane == 0) lower[warp] = below, own[warp] = mine;
  __syncthreads();
  int first = 0, before = 0, all = 0;
#pragma unroll
  for (int w = 0; w < kSortWarps; ++w) first += lower[w], before += w < warp ? own[w] : 0, all += own[w];
  if (threadIdx.x == 0) offsets[e] = first;
  if (e + 1 == experts && threadIdx.x == 0) offsets[experts] = first + all;
  if (mine == 0) return;
  int at = first + before;
  for (int i0 = begin; i0 < end; i0 += 32) {
    const int i = i0 + lane;
    const bool here = i < end && expert(i) == e;
    const unsigned who = __ballot_sync(0xffffffffu, here);
    if (here) row_of.row(i / top_k)[i % top_k] = at + __popc(who & ((1u << lane) - 1));
    for (unsigned left = move.x == nullptr ? 0 : who; left != 0; left &= left - 1) {
      const int bit = __ffs(static_cast<int>(left)) - 1, row = at + __popc(who & ((1u << bit) - 1));
      const auto* from = reinterpret_cast<const uint4*>(move.x + (i0 + bit) / top_k * move.x_stride);
      auto* to = reinterpret_cast<uint4*>(move.out + row * move.out_stride);
#pragma unroll 4
      for (int w = lane; w < move.words; w += 32) to[w] = from[w];
    }
    at += __popc(who);
  }
}

// Rows as bytes in words of W.
template <class W>
__global__ void spread_kernel(const char* x, int64_t x_stride, Rows<const int32_t> row_of, char* out,
                              int64_t out_stride, int64_t words) {
  let_next_start();
  wait_for_previous();
  const int64_t t = blockIdx.x;
  if (row_of.row(t)[blockIdx.y] < 0 || row_of.row(t)[blockIdx.y] >= int64_t{gridDim.x} * gridDim.y) return;
  const auto* from = reinterpret_cast<const W*>(x + t * x_stride);
  auto* to = reinterpret_cast<W*>(out + row_of.row(t)[blockIdx.y] * out_stride);
  for (int64_t i = threadIdx.x; i < words; i += blockDim.x) to[i] = from[i];
}

}  // namespace

Status check_permute(const ops::MoePermuteParams& p) {
  constexpr const char* kOp = "moe_permute";
  const int64_t n = p.x.dim[0], top_k = p.ids.dim[1];
  TERN_OP_CHECK(kOp, ops::is_act(p.x.dtype) && p.x.rank == 2 && ops::is_rows(p.x), "x must be [T, H]");
  TERN_OP_CHECK(kOp, p.ids.dtype == DType::kI32 && ops::is_matrix(p.ids, n, top_k), "ids must be [T, top_k] int32");
  TERN_OP_CHECK(kOp, p.experts >= 1 && ops::is_vector(p.offsets, DType::kI32, p.experts + int64_t{1}),
                "offsets must be [E + 1] int32");
  TERN_OP_CHECK(kOp, p.row_of.dtype == DType::kI32 && ops::is_matrix(p.row_of, n, top_k),
                "row_of must be [T, top_k] int32");
  TERN_OP_CHECK(kOp, p.out.dtype == p.x.dtype && ops::is_matrix(p.out, n * top_k, p.x.dim[1]),
                "out must be [T * top_k, H]");
  TERN_OP_CHECK(kOp, n * top_k < (int64_t{1} << 30), "there are too many rows");
  return {};
}

Status moe_permute(const ops::MoePermuteParams& p, device::Stream stream) {
  TERN_RETURN_IF_ERROR(check_permute(p));
  const int64_t n = p.x.dim[0], top_k = p.ids.dim[1];
  const auto bytes = static_cast<int64_t>(dtype_bytes(p.x.dtype));
  const int64_t row = p.x.dim[1] * bytes, from = p.x.stride[0] * bytes, to = p.out.stride[0] * bytes;
  const bool vector = can_vector(p.x, p.x.dim[1]) && can_vector(p.out, p.x.dim[1]);
  RowMove move;
  if (vector && n * top_k <= kMovedPairs) {
    move = {static_cast<const char*>(p.x.data), from, static_cast<char*>(p.out.data), to, static_cast<int>(row / 16)};
  }
  const Status sorted =
      launch(stream, move.x != nullptr ? "moe_permute_few" : "moe_permute",
             {static_cast<unsigned>(p.experts), kSortThreads}, sort_kernel, rows_of<const int32_t>(p.ids),
             static_cast<int>(top_k), n * top_k, p.experts, p.offsets.as<int32_t>(), rows_of<int32_t>(p.row_of), move);
  if (n == 0 || move.x != nullptr || !sorted.ok()) return sorted;
  const dim3 grid(static_cast<unsigned>(n), static_cast<unsigned>(top_k));
  const auto spread = [&]<class W>() {
    return launch(stream, "moe_permute", {grid, 128}, spread_kernel<W>, static_cast<const char*>(p.x.data), from,
                  rows_of<const int32_t>(p.row_of), static_cast<char*>(p.out.data), to,
                  row / static_cast<int64_t>(sizeof(W)));
  };
  return vector ? spread.template operator()<uint4>() : spread.template operator()<uint16_t>();
}

}  // namespace tern::cuda
