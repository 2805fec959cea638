// Penalties, temperature, min-p, top-k, top-p and the draw: a block per row, or a cluster of blocks while the GPU has
// room for them.
#include <cfloat>

#include "cuda/ptx/launch.cuh"
#include "cuda/runtime/cuda_ops.h"
#include "cuda/sampling/choice.h"
#include "cuda/sampling/penalties.cuh"
#include "cuda/sampling/sample_chunks.cuh"
#include "cuda/sampling/sample_draw.cuh"
#include "ops/op_check.h"

namespace tern::cuda {
namespace {

struct DrawArgs {
  Rows<float> logits;
  int64_t logit_rows;
  int n;
  int room;       // quads of a row that a block may keep in shared memory
  bool aligned;   // rows begin at 16-byte boundaries, and have whole quads
  bool penalise;  // not yet done
  const SampleRow* rows;
  SlotArrays slots;
  SampleOut out;
};

constexpr int kQuads = 4;  // per lane and chunk
// The longest row of the fast way.
template <int kClusterSize>
constexpr int kLongest = kClusterSize*(kChunks - 1) * 128 * kQuads;

// The id of the first entry with the largest value.
__device__ int top_index(const Piece& p, const RowRange& range) {
  for (int i = 4 * range.quad; i < min(p.n, 4 * range.quad + 4); ++i) {
    if (ordered_bits(p.x[i]) == range.most) return i;
  }
  return 0;
}

// By one warp: the id at which the running sum over a chunk passes `target`. Only one lane is told; the others get -1.
template <int kQuadsOfChunk>
__device__ int streamk_chunk(const Piece& p, int chunk, unsigned long long target, float least, float scale,
                             float top) {
  const int quad = p.begin + chunk * 32 * kQuadsOfChunk + static_cast<int>(threadIdx.x % 32);
  float4 v[kQuadsOfChunk];
  p.load<kQuadsOfChunk, 32>(quad, v);
  const auto weight = [&](float x) { return x >= least ? weight_of(x, scale, top) : 0u; };
  unsigned long long run = 0;
#pragma unroll
  for (int u = 0; u < kQuadsOfChunk; ++u) {
    const unsigned long long a = weight(v[u].x), b = a + weight(v[u].y), c = b + weight(v[u].z), d = c + weight(v[u].w);
    const unsigned long long upto = run + warp_running_sum(d), before = upto - d;
    const unsigned passed = __ballot_sync(0xffffffffu, upto > target);
    if (passed != 0) {
      if (static_cast<int>(threadIdx.x % 32) != __ffs(static_cast<int>(passed)) - 1) return -1;
      const int i = before + a > target ? 0 : before + b > target ? 1 : before + c > target ? 2 : 3;
      return 4 * (quad + 32 * u) + i;
    }
    run = __shfl_sync(0xffffffffu, upto, 31);
  }
  return -1;
}

// What every block knows at last.
struct Found {
  Nucleus nucleus;
  unsigned long long earlier, own;  // masses of the nucleus in earlier blocks of the cluster, in this one
};

// Tells the cluster what this block listed and summed; the lists of all into sh.gathered, where those of block r are
// entries starts[r] to starts[r + 1].
template <int kClusterSize>
__device__ void exchange_lists(int rank, int (&starts)[kClusterSize + 1], DrawShared<kClusterSize>& sh) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const unsigned long long part = warp_sum64(sh.chunks[threadIdx.x]);
  if (lane == 0) sh.row.sums[warp] = part;
  __syncthreads();
  if (warp == 0) {
    const unsigned long long mass = warp_sum64(sh.row.sums[lane]);
    if (lane < kClusterSize) {
      cluster_store<kClusterSize>(sh.cluster_mass + rank, lane, mass),
          cluster_store<kClusterSize>(sh.cluster_listed + rank, lane, sh.listed);
    }
  }
  cluster_barrier<kClusterSize>();
  starts[0] = 0;
#pragma unroll
  for (int r = 0; r < kClusterSize; ++r) starts[r + 1] = starts[r] + static_cast<int>(sh.cluster_listed[r]);
  for (int i = threadIdx.x; i < starts[kClusterSize]; i += kRowThreads) {
    int r = 0, start = 0;
#pragma unroll
    for (int k = 1; k < kClusterSize; ++k) {
      if (i >= starts[k]) r = k, start = starts[k];
    }
    sh.gathered[i] = cluster_load<kClusterSize>(sh.list.entry + (i - start), r);
  }
  __syncthreads();
  cluster_arrive<kClusterSize>();
}

// The end of the nucleus, from what all blocks of the cluster listed and summed.
template <int kClusterSize>
__device__ Found gather(const Cut& cut, bool truncated, uint32_t base, int rank, DrawShared<kClusterSize>& sh) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int starts[kClusterSize + 1];
  exchange_lists(rank, starts, sh);
  Found f{{base - cut.low, cut.before + cut.mass}, 0, 0};
  if (starts[kClusterSize] > 0) {
    f.nucleus = nucleus_end(sh.gathered, starts[kClusterSize], base - (cut.high - 1), base - cut.low, cut.before,
                            cut.limit, sh.row, sh.found);
    // A warp per block of the cluster adds what stays of its list.
    if (warp < kClusterSize) {
      int start = 0;
#pragma unroll
      for (int k = 0; k < kClusterSize; ++k) start = warp == k ? starts[k] : start;
      unsigned long long kept = 0;
      for (int i = lane; i < static_cast<int>(sh.cluster_listed[warp]); i += 32) {
        const unsigned long long e = sh.gathered[start + i];
        if (static_cast<uint32_t>(e >> 32) <= f.nucleus.last) kept += e & 0xffffffffu;
      }
      kept = warp_sum64(kept);
      if (lane == 0) sh.cluster_mass[warp] += kept;
    }
    __syncthreads();
  }
  unsigned long long all = 0;
#pragma unroll
  for (int r = 0; r < kClusterSize; ++r) {
    if (r < rank) f.earlier += sh.cluster_mass[r];
    all += sh.cluster_mass[r];
  }
  f.own = sh.cluster_mass[rank];
  if (!truncated) f.nucleus.mass = all;
  return f;
}

// The same for a block by itself.
__device__ Found gather(const Cut& cut, bool truncated, uint32_t base, int, DrawShared<1>& sh) {
  const auto count = static_cast<int>(sh.listed);
  Found f{{base - cut.low, cut.before + cut.mass}, 0, 0};
  if (!truncated) {
    f.nucleus.mass = row_sum(sh.chunks[threadIdx.x], sh.row);
    __syncthreads();  // sums are read
  } else if (count > 0) {
    f.nucleus = nucleus_end(sh.list.entry, count, base - (cut.high - 1), base - cut.low, cut.before, cut.limit, sh.row,
                            sh.found);
  }
  f.own = f.nucleus.mass;
  return f;
}

// The draw without top-k and min-p. Calls write(draw) in one thread of the cluster.
template <int kClusterSize, class Write>
__device__ void fast_draw(Piece p, const DrawArgs& a, const SampleRow& r, const SlotParams& s, int rank,
                          DrawShared<kClusterSize>& sh, const Write& write) {
  const bool pick_top = s.greedy != 0 || s.top_k == 1 || s.top_p < 1e-5f;
  const RowRange range = cluster_range(p, pick_top ? 0 : a.room, rank, sh);
  const float max = from_ordered(range.most), top = __fmul_rn(max, s.scale);
  if (range.nan || max == -INFINITY || !isfinite(top) || pick_top) {
    if (rank != 0 || threadIdx.x != 0) return;
    if (range.nan) return write(Draw{0, ops::kSampleNan, 0.0f});
    if (max == -INFINITY) return write(Draw{0, ops::kSampleEmpty, 0.0f});
    return write(Draw{top_index(p, range), ops::kSampleOk, 1.0f});
  }
  const Binning bin(s.scale, top, range.least);
  const bool truncated = s.top_p < 1.0f;
  const uint32_t all = ordered_bits(-FLT_MAX);
  Cut cut{all, all, 0, 0, 0, 0};
  const auto make_random = [&] {
    if (threadIdx.x % 32 == 0) sh.random = row_random(r, s);
  };
  if (truncated) {
    cut = find_cut(
        p, bin, range.most, sh, [&](unsigned long long mass) { return mass_limit(s.top_p, mass); }, make_random);
  } else if (threadIdx.x < 32) {
    make_random();
  }
  const bool listed = truncated && cut.high - cut.low > 1;
  sum_chunks<kQuads>(p, s.scale, top, from_ordered(cut.low), from_ordered(listed ? cut.high : cut.low), range.most, sh);
  __syncthreads();
  const Found f = gather(cut, truncated, range.most, rank, sh);
  const unsigned long long target = __umul64hi(sh.random, f.nucleus.mass);
  if (f.earlier <= target && target - f.earlier < f.own) {
    const float least = truncated ? from_ordered(range.most - f.nucleus.last) : -FLT_MAX;
    if (listed) {
      for (int i = threadIdx.x; i < static_cast<int>(sh.listed); i += kRowThreads) {
        const unsigned long long e = sh.list.entry[i];
        if (static_cast<uint32_t>(e >> 32) <= f.nucleus.last)
          atomicAdd(&sh.chunks[sh.list.place[i] / (128 * kQuads)], e & 0xffffffffu);
      }
      __syncthreads();
    }
    const unsigned long long own = target - f.earlier;
    const Crossing c = find_crossing(
        sh.row, sh.found, [&](int i) { return sh.chunks[i]; }, [&](unsigned long long) { return own + 1; });
    if (threadIdx.x < 32) {
      const int id = streamk_chunk<kQuads>(p, c.at, own - c.before, least, s.scale, top);
      if (id >= 0 && a.out.probs == nullptr) {
        write(Draw{id, ops::kSampleOk, 0.0f});
      } else if (id >= 0) {
        const double weight = weight_of(p.x[id], s.scale, top);
        const unsigned long long row_mass = truncated ? cut.total : f.nucleus.mass;
        write(Draw{id, ops::kSampleOk, static_cast<float>(weight / __ull2double_rn(row_mass))});
      }
    }
  }
  cluster_wait<kClusterSize>();
}

template <int kClusterSize>
__global__ void __launch_bounds__(kRowThreads) sample_kernel(const DrawArgs a) {
  extern __shared__ __align__(16) char memory[];
  auto& sh = *reinterpret_cast<DrawShared<kClusterSize>*>(memory);
  const auto row = static_cast<int>(blockIdx.x / kClusterSize), rank = static_cast<int>(blockIdx.x % kClusterSize);
  if (gridDim.x <= 32) let_next_start();  // else its blocks would crowd together on what is free
  cluster_arrive<kClusterSize>();
  bring_parameters(a);
  clear_masses(sh);
  sh.chunks[threadIdx.x] = 0;
  if (threadIdx.x == 0) sh.listed = 0, sh.row.word = 0;
  wait_for_previous();
  cluster_wait<kClusterSize>();
  if (kClusterSize == 1) __syncthreads();
  const SampleRow r = a.rows[row];
  if (r.logit_row < 0 || r.logit_row >= a.logit_rows || r.slot < 0 || r.slot >= a.slots.slots) return;
  const SlotParams& s = a.slots.params[r.slot];
  float* x = a.logits.row(r.logit_row);
  const Piece p(x, a.n, rank, kClusterSize, 32 * kQuads, reinterpret_cast<float4*>(memory + sizeof(sh)));
  const bool penalised = a.penalise && s.penalised != 0;
  if (penalised) {
    if (threadIdx.x == 0 && a.aligned && p.end > p.begin) prefetch(p);  // ids of penalties are all over it
    penalise_queued<kRowThreads>(x, 4 * p.begin, min(a.n, 4 * p.end), s,
                                 a.slots.seen + r.slot * ops::seen_words(a.slots.vocab),
                                 a.slots.counts + r.slot * a.slots.vocab, reinterpret_cast<uint32_t*>(sh.row.bins),
                                 sizeof(sh.row.bins) / sizeof(uint32_t), &sh.row.word);
  }
  __syncthreads();
  const auto write = [&](const Draw& d) { finish_row(r, s, a.slots, d, a.out); };
  const bool want_prob = a.out.probs != nullptr;
  const bool truncated = (s.top_k > 1 && s.top_k < a.n) || s.min_p > 0.0f;
  const bool pick_top = s.greedy != 0 || s.top_k == 1 || s.top_p < 1e-5f;
  if ((truncated && !pick_top) || (pick_top && want_prob) || !a.aligned || a.n > kLongest<kClusterSize>) {
    if (penalised) cluster_barrier<kClusterSize>();
    if (rank != 0) return;
    const Draw d = draw(x, a.n, s, row_random(r, s), want_prob, sh.row);
    if (threadIdx.x == 0) write(d);
    return;
  }
  fast_draw(p, a, r, s, rank, sh, write);
}

// Shared memory of a block that has a multiprocessor to itself: as much of its piece as fits beside the rest.
template <int kClusterSize>
size_t shared_bytes(int64_t vocab, device::Stream stream) {
  const size_t least = sizeof(DrawShared<kClusterSize>),
               piece = static_cast<size_t>(vocab) * sizeof(float) / kClusterSize + 2048;
  return std::max(least, std::min(least + piece, static_cast<size_t>(state(stream).smem_limit)) / 16 * 16);
}

template <int kClusterSize>
Status launch_cluster(const ops::SampleParams& p, int64_t logit_rows, device::Stream stream) {
  const char* name = kClusterSize > 1 ? "sample_cluster" : "sample";
  const ops::LogitsParams& in = p.rows;
  const size_t bytes = shared_bytes<kClusterSize>(in.logits.dim[1], stream);
  DrawArgs a{rows_of<float>(in.logits), logit_rows, static_cast<int>(in.logits.dim[1])};
  a.room = static_cast<int>((bytes - sizeof(DrawShared<kClusterSize>)) / sizeof(float4));
  a.aligned = reinterpret_cast<uintptr_t>(in.logits.data) % 16 == 0 && in.logits.stride[0] % 4 == 0;
  a.penalise = p.penalise, a.rows = in.rows, a.slots = in.slots;
  a.out = {p.ids.as<int32_t>(), p.status.as<int32_t>(), p.probs.empty() ? nullptr : p.probs.as<float>()};
  const Shape shape{static_cast<unsigned>(in.count * kClusterSize), kRowThreads, bytes, kClusterSize};
  return launch(stream, name, shape, sample_kernel<kClusterSize>, a);
}

// Multiprocessors for clusters of blocks; 0 where the GPU or the build has none.
int cluster_multiprocessors(device::Stream stream) {
#ifdef TERN_EMULATED
  return 132;  // as on the GPUs that have them, so that every cluster is emulated
#else
  return state(stream).arch >= 90 && waits_compiled() ? state(stream).multiprocessors : 0;
#endif
}

}  // namespace

size_t sample_workspace(device::Stream, int64_t) { return 0; }

Status sample(const ops::SampleParams& p, device::Stream stream) {
  constexpr const char* kOp = "sample";
  const ops::LogitsParams& in = p.rows;
  TERN_OP_CHECK(kOp, in.logits.rank == 2 && in.logits.dtype == DType::kF32 && ops::is_rows(in.logits),
                "logits must be [L, V] f32");
  TERN_OP_CHECK(
      kOp,
      p.ids.rank == 1 && p.ids.dtype == DType::kI32 && p.status.dtype == DType::kI32 && p.status.dim[0] >= p.ids.dim[0],
      "ids and status must be [L] int32");
  TERN_OP_CHECK(kOp, in.logits.dim[1] <= 0x7fffff00, "the vocabulary is too large");
  TERN_OP_CHECK(kOp, !p.penalise || in.slots.vocab == in.logits.dim[1], "slots are of another vocabulary");
  if (in.count == 0) return {};
  TERN_OP_CHECK(kOp, in.rows != nullptr, "rows are missing");
  const int64_t rows = in.logits.dim[0] < p.ids.dim[0] ? in.logits.dim[0] : p.ids.dim[0];
  switch (choose_sample(in.count, in.logits.dim[1], cluster_multiprocessors(stream))) {
    case SampleKernel::kCluster8:
      return launch_cluster<8>(p, rows, stream);
    case SampleKernel::kCluster4:
      return launch_cluster<4>(p, rows, stream);
    case SampleKernel::kCluster3:
      return launch_cluster<3>(p, rows, stream);
    case SampleKernel::kCluster2:
      return launch_cluster<2>(p, rows, stream);
    case SampleKernel::kBlock:
      break;
  }
  return launch_cluster<1>(p, rows, stream);
}

}  // namespace tern::cuda
