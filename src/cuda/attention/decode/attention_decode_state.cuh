// What the decode attention of Hopper (attention_decode_tma.cuh) keeps: its shapes, and the state of a softmax that
// threads share.
#pragma once

#include "cuda/attention/attention_decode_range.cuh"
#include "cuda/ptx/hopper.cuh"

namespace tern::cuda {

// kN: queries in eights. kStages: tiles (of keys or of values) that may be under way.
template <KvCode kCode_, int kD_, int kN_, int kStages_, int kBlocks_>
struct DecodeShapeOf {
  static constexpr KvCode kCode = kCode_;
  static constexpr bool kCodes = kCode != KvCode::kNone;
  static constexpr int kD = kD_, kN = kN_, kStages = kStages_, kBlocks = kBlocks_;  // kBlocks per multiprocessor
  static constexpr int kThreads = 160, kHalves = kD / 64, kHalfBytes = kDecodeTile * 128;
  static constexpr int kStageBytes = kCodes ? kDecodeTile * kD : kHalves * kHalfBytes, kSteps = kD / 16;
  static constexpr int kScaleBytes = kCodes ? kDecodeTile * 4 : 0;  // of the tokens of a stage's codes
  static constexpr int kRows = kD / 64;                             // of 16 columns of the values that a warp has
  static constexpr int kValues = kRows * kN * 4;                    // sums of a thread
  static constexpr int kPitch = kDecodeTile + 4;                    // of the scores of a query, padded against banks
  static constexpr int kScores = 8 * kN * kPitch;                   // twice: one tile is written while another is read
  static constexpr int kNode = 128 * kValues + 16 * kN;             // floats of a state in `slots`
  static constexpr size_t kBytes = 1024 + kStages * (kStageBytes + kScaleBytes) + 2 * kScores * 4 + 16 * kStages + 16;
  // Of the values' columns that of sum v[r][n][2 * upper] and the next one.
  static __device__ __forceinline__ int column(int thread, int r, int upper) {
    const int warp = thread / 32, row = thread % 32 / 4;
    if (kCodes) return (warp * 8 + row) * 2 * kRows + 2 * r + upper;
    return (warp * kRows + r) * 16 + row + 8 * upper;
  }
};
template <int kD, int kN, int kStages, int kBlocks>
struct DecodeShape : DecodeShapeOf<KvCode::kNone, kD, kN, kStages, kBlocks> {};
template <KvCode kCode, int kD, int kN, int kStages, int kBlocks>
struct CodesShape : DecodeShapeOf<kCode, kD, kN, kStages, kBlocks> {};

// Tiles on their way, scores of the last two, and what the warps tell each other.
template <class S>
struct DecodeShared {
  char* ring;
  float *scales, *scores;  // scales: of codes, by stage
  uint64_t *full, *free;
  int* last;
  __device__ explicit DecodeShared(char* memory) {
    ring = memory + (1024 - hopper::shared_address(memory) % 1024) % 1024;
    scales = reinterpret_cast<float*>(ring + S::kStages * S::kStageBytes);
    scores = scales + S::kStages * S::kScaleBytes / 4;
    full = reinterpret_cast<uint64_t*>(scores + 2 * S::kScores), free = full + S::kStages;
    last = reinterpret_cast<int*>(free + S::kStages);
  }
};

template <class S>
struct DecodePlace {
  int stage = 0;
  uint32_t phase = 0;
  __device__ __forceinline__ void next() {
    if (++stage == S::kStages) stage = 0, phase ^= 1;
  }
};

// What a thread has of a state: queries 8 n + 2 (lane % 4) and the next; columns as S::column() says.
template <class S>
struct DecodeState {
  float m[2 * S::kN], l[2 * S::kN], v[S::kRows][S::kN][4];
  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int q = 0; q < 2 * S::kN; ++q) m[q] = -INFINITY, l[q] = 0.0f;
#pragma unroll
    for (int i = 0; i < S::kValues; ++i) v[i / 4 / S::kN][i / 4 % S::kN][i % 4] = 0.0f;
  }
  // Joins what comes after; an empty side leaves the other as it is.
  __device__ __forceinline__ void add(const DecodeState& y) {
#pragma unroll
    for (int q = 0; q < 2 * S::kN; ++q) {
      const JoinFactors f = join_factors(m[q], y.m[q]);
      const bool first = m[q] == -INFINITY, none = y.m[q] == -INFINITY;
      const auto one = [&](float mine, float other) {
        const float both = join(mine, other, f);
        return none ? mine : first ? other : both;
      };
      m[q] = f.m, l[q] = one(l[q], y.l[q]);
#pragma unroll
      for (int r = 0; r < S::kRows; ++r) {
        float(&x)[4] = v[r][q / 2];
        x[q % 2] = one(x[q % 2], y.v[r][q / 2][q % 2]);
        x[2 + q % 2] = one(x[2 + q % 2], y.v[r][q / 2][2 + q % 2]);
      }
    }
  }
  // To or from a node of `slots`; places without a query are left out.
  __device__ __forceinline__ void epilogue(float* node, int queries) const {
    const int thread = threadIdx.x, j = thread % 4;
#pragma unroll
    for (int n = 0; n < S::kN; ++n) {
      if (8 * n + 2 * j >= queries) continue;
#pragma unroll
      for (int r = 0; r < S::kRows; ++r) {
        const float(&x)[4] = v[r][n];
        reinterpret_cast<float4*>(node)[(r * S::kN + n) * 128 + thread] = make_float4(x[0], x[1], x[2], x[3]);
      }
      if (thread < 4) {
        reinterpret_cast<float4*>(node + 128 * S::kValues)[n * 4 + j] =
            make_float4(m[2 * n], m[2 * n + 1], l[2 * n], l[2 * n + 1]);
      }
    }
  }
  __device__ __forceinline__ void read(const float* node, int queries) { read(node, queries, threadIdx.x); }
  // What thread `thread` left.
  __device__ __forceinline__ void read(const float* node, int queries, int thread) {
    const int j = thread % 4;
#pragma unroll
    for (int n = 0; n < S::kN; ++n) {
      if (8 * n + 2 * j >= queries) continue;
#pragma unroll
      for (int r = 0; r < S::kRows; ++r) {
        const float4 x = __ldcg(reinterpret_cast<const float4*>(node) + (r * S::kN + n) * 128 + thread);
        v[r][n][0] = x.x, v[r][n][1] = x.y, v[r][n][2] = x.z, v[r][n][3] = x.w;
      }
      const float4 s = __ldcg(reinterpret_cast<const float4*>(node + 128 * S::kValues) + n * 4 + j);
      m[2 * n] = s.x, m[2 * n + 1] = s.y, l[2 * n] = s.z, l[2 * n + 1] = s.w;
    }
  }
};

// What thread `thread` of those that compute has of the result.
template <class S>
__device__ void decode_store(const AttentionArgs& a, const AttentionUnit& u, const DecodeState<S>& total, int thread) {
#pragma unroll
  for (int q = 0; q < 2 * S::kN; ++q) {
    const int i = q / 2 * 8 + thread % 4 * 2 + q % 2;
    if (i >= u.queries()) continue;
#pragma unroll
    for (int r = 0; r < S::kRows; ++r) {
      store_out(a, u, i, S::column(thread, r, 0), total.v[r][q / 2][q % 2], total.l[q]);
      store_out(a, u, i, S::column(thread, r, 1), total.v[r][q / 2][2 + q % 2], total.l[q]);
    }
  }
}

template <class S>
__device__ __forceinline__ void decode_store(const AttentionArgs& a, const AttentionUnit& u,
                                             const DecodeState<S>& total) {
  decode_store<S>(a, u, total, threadIdx.x);
}

}  // namespace tern::cuda
