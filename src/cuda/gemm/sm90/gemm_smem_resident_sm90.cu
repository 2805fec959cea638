// Products of up to eight rows on Hopper whose weight finds room on the GPU at once: the sums of
// gemm_register_resident.cu, but the copy engine brings a block's weight into shared memory. So a block needs few
// registers, and blocks of this kernel and of the next ones find room beside each other: their weights are there when
// their rows are. All that does not depend on those rows is done before the wait for the kernel before.
#include "cuda/gemm/epilogues/norm_epilogue.cuh"
#include "cuda/gemm/gemm.h"
#include "cuda/ptx/hopper_units.cuh"
#include "cuda/ptx/launch.cuh"
#include "cuda/ptx/mma.cuh"
#include "cuda/ptx/tensor_map.h"

namespace tern::cuda {
namespace {

// With fewer registers more blocks of neighbouring kernels find room beside each other. That pays for one and two rows
// (ERNIE-4.5-0.3B on an H200: steps of 409 and 422 us instead of 424 and 449; of eight rows 534 instead of 506); why
// not for more is not known.
constexpr int kManyRegisters = 80, kFewRegisters = 72, kFewestRows = 2;
constexpr int kPlanes = kSmemPlanes, kPlaneBytes = kSmemPlaneBytes, kMostWarps = kMostSmemWarps;
// Planes of a warp that are on their way at once. More would stand before what the kernels at work ask of the memory.
constexpr int kPace = 2;

// The scales of a norm before the product, by a warp of their own: four lanes have a row's sums of squares.
__device__ __forceinline__ void box_scales(const Gemm& g, float* scales) {
  constexpr int kTogether = 4;  // loads under way
  const int row = static_cast<int>(threadIdx.x & 31) / 4, own = static_cast<int>(threadIdx.x) % 4;
  const auto* from = reinterpret_cast<const float4*>(g.before.squares + row * g.before.parts) + own;
  const int count = row < g.rows ? g.before.parts / 4 - own : 0;
  float sum = 0.0f;
  for (int i = 0; i < count; i += 4 * kTogether) {
    float4 v[kTogether];
#pragma unroll
    for (int k = 0; k < kTogether; ++k) v[k] = i + 4 * k < count ? from[i + 4 * k] : make_float4(0, 0, 0, 0);
#pragma unroll
    for (int k = 0; k < kTogether; ++k) sum += (v[k].x + v[k].y) + (v[k].z + v[k].w);
  }
  sum += __shfl_xor_sync(0xffffffffu, sum, 1);
  sum += __shfl_xor_sync(0xffffffffu, sum, 2);
  if (own == 0 && row < g.rows) scales[row] = norm_scale(g.before, sum, g.k);
}

// Eight values of a row, or what `v` was.
__device__ __forceinline__ void load_if(uint4& v, const bf* p, bool there) {
  asm volatile(
      "{.reg .pred p;\nsetp.ne.b32 p, %5, 0;\n"
      "@p ld.relaxed.gpu.global.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];}\n"
      : "+r"(v.x), "+r"(v.y), "+r"(v.z), "+r"(v.w)
      : "l"(p), "r"(static_cast<int>(there))
      : "memory");
}

// The norm behind the product: a lane's quad of sums, two tokens and two columns, 8 apart (NormQuad).
struct SmemResidentEpilogue {
  float* residual;  // of the first token
  float weight[2], old[2][2];
  int count;  // of the tokens
  __device__ __forceinline__ void begin(const Gemm& g, int64_t token, int64_t col) {
    weight[0] = norm_weight(g.after, col), weight[1] = norm_weight(g.after, col + 8);
    count = static_cast<int>(g.rows - token);
    residual = g.after.residual + token * g.after.residual_row + col;
    settle(residual);
  }
  __device__ __forceinline__ void load(const Gemm& g) {
#pragma unroll
    for (int t = 0; t < 2; ++t) {
      const float* from = residual + t * g.after.residual_row;
      old[t][0] = t < count ? from[0] : 0.0f, old[t][1] = t < count ? from[8] : 0.0f;
    }
  }
  __device__ __forceinline__ void end(const Gemm& g, int64_t token, int64_t col, const float4& sum) const {
    const float v[2][2] = {{sum.x + old[0][0], sum.z + old[0][1]}, {sum.y + old[1][0], sum.w + old[1][1]}};
    bf* const x = static_cast<bf*>(g.after.x) + token * g.after.x_row + col;
    float* const squares = g.after.squares + token * g.after.parts + col / 16;
    float square[2] = {};
#pragma unroll
    for (int t = 0; t < 2; ++t) {
      if (t >= count) continue;
      square[t] = v[t][0] * v[t][0] + v[t][1] * v[t][1];
      float* const sums = residual + t * g.after.residual_row;
      sums[0] = v[t][0], sums[8] = v[t][1];
      bf* const to = x + t * g.after.x_row;
      to[0] = from_float<bf>(v[t][0] * weight[0]), to[8] = from_float<bf>(v[t][1] * weight[1]);
    }
#pragma unroll
    for (int d = 4; d < 32; d *= 2) {
#pragma unroll
      for (float& s : square) s += __shfl_xor_sync(0xffffffffu, s, d);
    }
    if ((threadIdx.x & 31) >= 4) return;
    if (count > 0) *squares = square[0];
    if (count > 1) squares[g.after.parts] = square[1];
  }
};

// A warp's run of the weight, which it brings and reads by itself.
struct SmemResidentRun {
  char* planes;    // [plane][rows and those behind them][8][128 bytes], swizzled
  uint64_t* full;  // one per plane
  int first, count;
  __device__ SmemResidentRun(const Gemm& g, char* memory, uint64_t* barriers) {
    const int warp = static_cast<int>(threadIdx.x) / 32;
    planes = memory + warp * kPlanes * kPlaneBytes, full = barriers + warp * kPlanes;
    first = warp * kPlanes, count = min(kPlanes, static_cast<int>(g.k / 64) - first);
  }
  // By one lane, of planes [from, to).
  __device__ __forceinline__ void bring(const CUtensorMap& map, int from, int to) const {
    for (int p = from; p < min(to, count); ++p) {
      if (p >= kPace) hopper::barrier_wait(full + p - kPace, 0);
      hopper::barrier_expect(full + p, kPlaneBytes);
      hopper::load_units(planes + p * kPlaneBytes, &map, full + p, static_cast<int>(blockIdx.x), first + p,
                         hopper::kEvictFirst);
    }
  }
  // A lane's values of a plane: [rows and those behind them][half of k], eight neighbours each. Odd rows read the
  // halves the other way round, so that no two lanes meet in a bank.
  __device__ __forceinline__ void read(int p, uint4 (&w)[2][2]) const {
    const int row = static_cast<int>(threadIdx.x & 31) / 4, own = static_cast<int>(threadIdx.x) % 4;
    const bool even = row % 2 == 0;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const char* from = planes + p * kPlaneBytes + r * 1024 + row * 128;
      const uint4 a = *reinterpret_cast<const uint4*>(from + (((even ? 0 : 4) + own) ^ row) * 16);
      const uint4 b = *reinterpret_cast<const uint4*>(from + (((even ? 4 : 0) + own) ^ row) * 16);
      w[r][0] = choose(even, a, b), w[r][1] = choose(even, b, a);
    }
  }
};

__device__ __forceinline__ float4 multiply_run(const SmemResidentRun& run, const uint4 (&x)[kPlanes][2]) {
  float acc[2][4] = {};
#pragma unroll
  for (int p = 0; p < kPlanes; ++p) {
    if (p >= run.count) break;
    hopper::barrier_wait(run.full + p, 0);
    uint4 w[2][2];
    run.read(p, w);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      mma(acc[h], {w[0][h].x, w[1][h].x, w[0][h].y, w[1][h].y}, {x[p][h].x, x[p][h].y});
      mma(acc[h], {w[0][h].z, w[1][h].z, w[0][h].w, w[1][h].w}, {x[p][h].z, x[p][h].w});
    }
  }
  return make_float4(acc[0][0] + acc[1][0], acc[0][1] + acc[1][1], acc[0][2] + acc[1][2], acc[0][3] + acc[1][3]);
}

// The part of a warp that multiplies. With a norm behind the product the first one begins that, too.
__device__ __forceinline__ float4 box_part(const CUtensorMap& map, const Gemm& g, const SmemResidentRun& run,
                                           bool leaves, SmemResidentEpilogue& leave, int64_t token, int64_t col) {
  const int lane = threadIdx.x & 31;
  if (lane == 0) {
    for (int p = 0; p < run.count; ++p) hopper::barrier_init(run.full + p, 1);
    hopper::barrier_init_done();
    run.bring(map, 0, kPace);
  }
  bring_parameters(g);
  if (leaves) leave.begin(g, token, col);
  uint4 x[kPlanes][2] = {};
  const bf* from = static_cast<const bf*>(g.x) + lane / 4 * g.x_row + run.first * 64 + lane % 4 * 8;
  settle(from);
  const int own = lane / 4 < g.rows ? run.count : 0;
  if (lane == 0) run.bring(map, kPace, kPlanes);
  __syncwarp();
  wait_for_previous();
#pragma unroll
  for (int i = 0; i < 2 * kPlanes; ++i) load_if(x[i / 2][i % 2], from + 32 * i, i / 2 < own);
  if (leaves) leave.load(g);
  return multiply_run(run, x);
}

// A block has 16 rows of the weight, with a gate 8 and the 8 that belong to them; `workers` warps deal k out among
// them. With a norm before the product there is one warp more.
template <bool kNormed, int kRegisters>
__global__ void __maxnreg__(kRegisters)
    smem_resident_kernel(const __grid_constant__ CUtensorMap map, const Gemm g, const int workers) {
  extern __shared__ __align__(16) char memory[];
  __shared__ uint64_t barriers[kMostWarps * kPlanes];
  __shared__ float scales[kRegisterResidentRows];
  let_next_start();
  const int warp = threadIdx.x / 32, lane = threadIdx.x & 31;
  const uint32_t misplaced = hopper::shared_address(memory) % 1024;
  char* const all = memory + (misplaced == 0 ? 0 : 1024 - misplaced);
  auto* const parts = reinterpret_cast<float4*>(all + workers * kPlanes * kPlaneBytes);  // [workers][32]
  const int64_t col = int64_t{blockIdx.x} * (g.gated ? 8 : 16) + lane / 4, token = lane % 4 * 2;
  const bool leaves = kNormed && g.after.residual != nullptr && warp == 0;
  SmemResidentEpilogue leave;
  if (kNormed && warp == workers) {
    bring_parameters(g);
    wait_for_previous();
    box_scales(g, scales);
  } else {
    const SmemResidentRun run(g, all, barriers);
    parts[warp * 32 + lane] = box_part(map, g, run, leaves, leave, token, col);
  }
  __syncthreads();
  if (warp != 0) return;
  float4 sum = parts[lane];
#pragma unroll 4
  for (int s = 1; s < workers; ++s) {
    const float4 v = parts[s * 32 + lane];
    sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
  }
  if (kNormed && g.before.squares != nullptr) {
    const float2 by = *reinterpret_cast<const float2*>(scales + token);
    sum.x *= by.x, sum.z *= by.x, sum.y *= by.y, sum.w *= by.y;
  }
  if (leaves) return leave.end(g, token, col, sum);
  const int64_t n = g.gated ? g.n / 2 : g.n;
  store_register_resident(g, n, token, col, sum.x, sum.z), store_register_resident(g, n, token + 1, col, sum.y, sum.w);
  if (g.gated) return;
  store_register_resident(g, n, token, col + 8, sum.z, 0), store_register_resident(g, n, token + 1, col + 8, sum.w, 0);
}

}  // namespace

Status gemm_smem_resident(const Gemm& g, const void* weight, device::Stream stream) {
  CUtensorMap map;
  TERN_RETURN_IF_ERROR(tensor_map_units(weight, g.n, g.w_row, g.gated, 1, 1, &map, g.k / 64));
  const int warps = smem_resident_warps(g);
  const bool scaled = g.before.squares != nullptr, normed = g.after.residual != nullptr || scaled;
  constexpr KernelNames kNames{"gemm_smem_resident", "gemm_smem_resident_normed"};
  const Shape shape{static_cast<unsigned>(g.n / 16), static_cast<unsigned>(warps + (scaled ? 1 : 0)) * 32,
                    smem_resident_bytes(warps)};
  const auto few = normed ? smem_resident_kernel<true, kFewRegisters> : smem_resident_kernel<false, kFewRegisters>;
  const auto many = normed ? smem_resident_kernel<true, kManyRegisters> : smem_resident_kernel<false, kManyRegisters>;
  return launch(stream, kNames.of(g), shape, g.rows <= kFewestRows ? few : many, map, g, warps);
}

}  // namespace tern::cuda
