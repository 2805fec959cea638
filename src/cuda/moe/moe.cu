// Mixture of experts: sort rows by expert.
#include <algorithm>

#include "cuda/gemm/gemm.h"
#include "cuda/moe/moe_sort.h"
#include "cuda/ptx/kernel_util.cuh"
#include "cuda/ptx/launch.cuh"
#include "cuda/runtime/cuda_ops.h"
#include "ops/op_check.h"

namespace tern::cuda {
namespace {

constexpr int kSortThreads = 512, kSortWarps = kSortThreads / 32;

constexpr int64_t kMovedPairs = 2048;  // more are spread by a kernel of their own
constexpr int64_t kMostCopied = 1024;  // up to which moe_dispatch() moves rows, which knows no token_of

// Rows of 16-byte words that the sort itself moves.
struct RowMove {
  const char* x = nullptr;
  int64_t x_stride = 0;  // bytes
  char* out = nullptr;
  int64_t out_stride = 0;
  int words = 0;
};

// The tokens of those of 32 pairs from `first` on that are in `who`, into rows from `at` on. A warp.
__device__ __forceinline__ void move_rows(const RowMove& move, int first, int top_k, unsigned who, int at) {
  for (unsigned left = who; left != 0; left &= left - 1) {
    const int bit = __ffs(static_cast<int>(left)) - 1, row = at + __popc(who & ((1u << bit) - 1));
    const auto* from = reinterpret_cast<const uint4*>(move.x + (first + bit) / top_k * move.x_stride);
    auto* to = reinterpret_cast<uint4*>(move.out + row * move.out_stride);
#pragma unroll 4
    for (int w = threadIdx.x & 31; w < move.words; w += 32) to[w] = from[w];
  }
}

// A block per expert: counts the pairs of lower experts, which is where its rows begin, and numbers its own pairs in
// order of tokens. Each warp has one run of pairs, so that the block meets only once. kMoves: their rows, too.
template <bool kMoves>
__global__ void __launch_bounds__(kSortThreads)
    sort_kernel(Rows<const int32_t> ids, int top_k, int64_t pairs, int experts, int32_t* offsets, Rows<int32_t> row_of,
                int32_t* token_of, const RowMove move) {
  constexpr int kAhead = kMoves ? 4 : 16;  // loads of a lane that are on their way together
  __shared__ int lower[kSortWarps], own[kSortWarps];
  let_next_start();
  wait_for_previous();
  const int e = blockIdx.x, lane = threadIdx.x & 31, warp = threadIdx.x / 32;
  const auto count = static_cast<int>(pairs);
  const bool flat = ids.stride == top_k;
  const auto expert = [&](int i) { return flat ? ids.data[i] : ids.row(i / top_k)[i % top_k]; };
  const int run = (count + kSortThreads - 1) / kSortThreads * 32;
  const int begin = min(count, warp * run), end = min(count, begin + run);
  int below = 0, mine = 0, seen = begin;
  const auto look = [&](int id) { below += id < e, mine += id == e; };
  if (flat && reinterpret_cast<uintptr_t>(ids.data) % 16 == 0) {  // runs begin at multiples of 32
    const auto* four = reinterpret_cast<const int4*>(ids.data);
#pragma unroll 4
    for (int i = begin / 4 + lane; i < end / 4; i += 32) {
      const int4 v = four[i];
      look(v.x), look(v.y), look(v.z), look(v.w);
    }
    seen = end / 4 * 4;
  }
#pragma unroll 4
  for (int i = max(begin, seen) + lane; i < end; i += 32) look(expert(i));
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
  for (int i0 = begin; i0 < end; i0 += 32 * kAhead) {
    int id[kAhead];
#pragma unroll
    for (int j = 0; j < kAhead; ++j) {
      const int i = i0 + 32 * j + lane;
      id[j] = i < end ? expert(i) : -1;
    }
#pragma unroll
    for (int j = 0; j < kAhead; ++j) {
      const int i = i0 + 32 * j + lane;
      if (i0 + 32 * j >= end) break;
      const bool here = id[j] == e;
      const unsigned who = __ballot_sync(0xffffffffu, here);
      if (here) {
        const int row = at + __popc(who & ((1u << lane) - 1));
        row_of.row(i / top_k)[i % top_k] = row;
        if (token_of != nullptr) token_of[row] = i / top_k;
      }
      if constexpr (kMoves) move_rows(move, i0 + 32 * j, top_k, who, at);
      at += __popc(who);
    }
  }
}

// Rows as bytes in words of W; a block per token, which is read once.
template <class W>
__global__ void __launch_bounds__(256) spread_kernel(const char* x, int64_t x_stride, Rows<const int32_t> row_of,
                                                     int top_k, char* out, int64_t out_stride, int64_t words) {
  wait_for_previous();
  // After the wait: who starts now finds the offsets.
  let_next_start();
  constexpr int kTogether = 8;
  const int64_t t = blockIdx.x, pairs = int64_t{gridDim.x} * top_k;
  const auto* from = reinterpret_cast<const W*>(x + t * x_stride);
  const int32_t* rows = row_of.row(t);
  for (int j0 = 0; j0 < top_k; j0 += kTogether) {
    int64_t row[kTogether];
#pragma unroll
    for (int j = 0; j < kTogether; ++j) row[j] = j0 + j < top_k ? rows[j0 + j] : -1;
    for (int64_t i = threadIdx.x; i < words; i += blockDim.x) {
      const W word = from[i];
#pragma unroll
      for (int j = 0; j < kTogether; ++j) {
        if (row[j] >= 0 && row[j] < pairs) reinterpret_cast<W*>(out + row[j] * out_stride)[i] = word;
      }
    }
  }
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
  TERN_OP_CHECK(kOp, p.token_of.data == nullptr || ops::is_vector(p.token_of, DType::kI32, n * top_k),
                "token_of must be [T * top_k] int32");
  TERN_OP_CHECK(kOp, n * top_k < (int64_t{1} << 30), "there are too many rows");
  return {};
}

bool rows_stay(const TensorView& x, const TensorView& token_of, int64_t experts, device::Stream stream) {
  const StreamState& s = state(stream);
  return token_of.data != nullptr && token_of.dim[0] > std::max(kMostCopied, kFewPerGroup * experts) && s.arch >= 90 &&
         s.arch < 100 && x.dtype == DType::kBF16 && can_vector(x, x.dim[1]);
}

Status moe_permute(const ops::MoePermuteParams& p, device::Stream stream) {
  TERN_RETURN_IF_ERROR(check_permute(p));
  const int64_t n = p.x.dim[0], top_k = p.ids.dim[1];
  const auto bytes = static_cast<int64_t>(dtype_bytes(p.x.dtype));
  const int64_t row = p.x.dim[1] * bytes, from = p.x.stride[0] * bytes, to = p.out.stride[0] * bytes;
  const bool vector = can_vector(p.x, p.x.dim[1]) && can_vector(p.out, p.x.dim[1]);
  const bool stay = rows_stay(p.x, p.token_of, p.experts, stream);
  RowMove move;
  if (vector && !stay && n * top_k <= kMovedPairs) {
    move = {static_cast<const char*>(p.x.data), from, static_cast<char*>(p.out.data), to, static_cast<int>(row / 16)};
  }
  const Status sorted = launch(stream,
                               stay                ? "moe_sort"
                               : move.x != nullptr ? "moe_permute_few"
                                                   : "moe_permute",
                               {static_cast<unsigned>(p.experts), kSortThreads},
                               move.x != nullptr ? sort_kernel<true> : sort_kernel<false>,
                               rows_of<const int32_t>(p.ids), static_cast<int>(top_k), n * top_k, p.experts,
                               p.offsets.as<int32_t>(), rows_of<int32_t>(p.row_of), p.token_of.as<int32_t>(), move);
  if (n == 0 || stay || move.x != nullptr || !sorted.ok()) return sorted;
  const auto spread = [&]<class W>() {
    const int64_t words = row / static_cast<int64_t>(sizeof(W));
    const auto threads = static_cast<unsigned>(std::min<int64_t>(256, blocks_for(words, 32) * 32));
    const Status done = launch(stream, "moe_permute", {static_cast<unsigned>(n), threads}, spread_kernel<W>,
                               static_cast<const char*>(p.x.data), from, rows_of<const int32_t>(p.row_of),
                               static_cast<int>(top_k), static_cast<char*>(p.out.data), to, words);
    state(stream).settled = p.offsets.data;
    return done;
  };
  return vector ? spread.template operator()<uint4>() : spread.template operator()<uint16_t>();
}

}  // namespace tern::cuda
