// What the two groups of attention_mla.cuh do with a pair of tiles:
//
//   left                                        right
//   scores of the even tile                     scores of the odd tile
//   top of both so far            -> tops ->
//   weights; mixes its columns                  top with the odd tile; weights
//   leaves the weights for the right            hands over the odd weights
//                                 <- odd <-     mixes its columns of the odd tile
//   leaves them again, scaled, where
//   the odd tile raised a top     -> even ->
//   mixes its columns of the odd tile           mixes its columns of the even tile
//
// Tops seldom rise (latent_top), and a warp whose tops did not has nothing left to do between odd and even.
//
// (*) Both groups wait at as many barriers: racecheck does not follow who came to which, it takes an access for later
// than another where its thread has more waits behind it.
#pragma once

#include "cuda/attention/mla/attention_mla.cuh"

namespace tern::cuda {
namespace {

// Where a group is in its unit.
struct LatentIterator {
  LatentItem x;
  int visible[2];  // keys that this thread's two queries see
  int open;        // keys that all see
  uint32_t phase[2] = {0, 0};
};

// The left group: even tiles, columns [0, 256). Afterwards its tile's weights `s` (`p`: packed) are on their way into
// its results and lie ready for the right group, below the tops in `st`.
template <int kClusterSize>
__device__ __forceinline__ void left_own(const AttentionArgs& a, const LatentShared& sh, LatentIterator& w, int j0,
                                         LatentState& st, float (&s)[32], uint32_t (&p)[16]) {
  const int lane = threadIdx.x & 31, row = threadIdx.x / 32 % 4 * 16 + lane / 4;
  float top[2], by[2], sum[2];
  latent_score<0>(s, sh, w.phase[0]);
  wgmma_wait<0>();
  if (j0 + 2 * kLatentKeys >= w.x.end) barrier_arrive(sh.q_free);
  latent_tops(s, w.visible, j0, j0 + kLatentKeys > w.open, top);
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    top[r] = latent_top(st.top[r], top[r], a.scale_log2);
    by[r] = latent_factor(st.top[r], top[r], a.scale_log2);
    st.top[r] = top[r];
    if (lane % 4 == 0) sh.top[row + 8 * r] = top[r];
  }
  group_arrive(kTopsBarrier, 256);
  latent_weigh(s, top, a.scale_log2, sum);
  latent_pack(s, p);
#pragma unroll
  for (int r = 0; r < 2; ++r) st.sum[r] = __fmaf_rn(st.sum[r], by[r], sum[r]);
  st.scale(by);
  if (j0 + kLatentKeys > w.x.end) latent_clear_tail<0>(sh.tile[0], w.x.end - j0);
  latent_mix_own<0>(st, p, sh.tile[0]);
  group_sync(kGroupBarrier, 128);  // all of the group have scored with what the weights overwrite
  latent_hand_over(p, sh.tile[0] + kRotary * kColumnBytes);
  w.phase[0] ^= 1;
}

template <int kClusterSize>
__device__ __forceinline__ void left_pair(const AttentionArgs& a, const LatentShared& sh, LatentIterator& w, int j0,
                                          LatentState& st) {
  const int lane = threadIdx.x & 31, row = threadIdx.x / 32 % 4 * 16 + lane / 4;
  float s[32], by[2];
  uint32_t p[16], scaled[16];
  left_own<kClusterSize>(a, sh, w, j0, st, s, p);
  group_sync(kOddBarrier, 256);
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float top = sh.top[kLatentQueries + row + 8 * r];
    by[r] = latent_factor(st.top[r], top, a.scale_log2);
    st.top[r] = top;
    st.sum[r] *= by[r];
  }
  if (__any_sync(0xffffffffu, by[0] != 1.0f || by[1] != 1.0f)) {
#pragma unroll
    for (int i = 0; i < 32; ++i) s[i] *= by[i / 2 % 2];
    latent_pack(s, scaled);
    latent_hand_over(scaled, sh.tile[0] + kRotary * kColumnBytes);
  }
  group_arrive(kEvenBarrier, 256);
  latent_wait_half<0>(sh, 1, w.phase[1]);
  wgmma_wait<0>();
  if (threadIdx.x % 128 == 0) free_columns<kClusterSize>(&sh.free[0][0]);
  st.scale(by);
  if (j0 + 2 * kLatentKeys > w.x.end) latent_clear_tail<0>(sh.tile[1], w.x.end - j0 - kLatentKeys);
  latent_mix_other<0>(st, sh.tile[1]);
  w.phase[1] ^= 1;
  wgmma_wait<0>();
  if (threadIdx.x % 128 == 0) free_columns<kClusterSize>(&sh.free[1][0]);
}

// The last even tile, without a neighbour.
template <int kClusterSize>
__device__ __forceinline__ void left_single(const AttentionArgs& a, const LatentShared& sh, LatentIterator& w, int j0,
                                            LatentState& st) {
  float s[32];
  uint32_t p[16];
  left_own<kClusterSize>(a, sh, w, j0, st, s, p);
  group_arrive(kEvenBarrier, 256);
  group_sync(kGroupBarrier, 128);  // (*)
  wgmma_wait<0>();
  if (threadIdx.x % 128 == 0) free_columns<kClusterSize>(&sh.free[0][0]);
}

// The right group: odd tiles, columns [256, 512).
template <int kClusterSize>
__device__ __forceinline__ void right_pair(const AttentionArgs& a, const LatentShared& sh, LatentIterator& w, int j0,
                                           LatentState& st) {
  const int lane = threadIdx.x & 31, row = threadIdx.x / 32 % 4 * 16 + lane / 4;
  const bool leader = threadIdx.x % 128 == 0;
  float s[32], top[2], by[2], sum[2];
  uint32_t p[16];
  latent_score<1>(s, sh, w.phase[1]);
  wgmma_wait<0>();
  if (j0 + 2 * kLatentKeys >= w.x.end) barrier_arrive(sh.q_free);
  latent_tops(s, w.visible, j0 + kLatentKeys, j0 + 2 * kLatentKeys > w.open, top);
  group_sync(kTopsBarrier, 256);
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float even = sh.top[row + 8 * r];
    top[r] = latent_top(even, top[r], a.scale_log2);
    by[r] = latent_factor(st.top[r], even, a.scale_log2) * latent_factor(even, top[r], a.scale_log2);
    st.top[r] = top[r];
    if (lane % 4 == 0) sh.top[kLatentQueries + row + 8 * r] = top[r];
  }
  latent_weigh(s, top, a.scale_log2, sum);
  latent_pack(s, p);
  latent_hand_over(p, sh.tile[1] + kRotary * kColumnBytes);
  group_arrive(kOddBarrier, 256);
#pragma unroll
  for (int r = 0; r < 2; ++r) st.sum[r] = __fmaf_rn(st.sum[r], by[r], sum[r]);
  st.scale(by);
  if (j0 + 2 * kLatentKeys > w.x.end) latent_clear_tail<1>(sh.tile[1], w.x.end - j0 - kLatentKeys);
  latent_mix_own<1>(st, p, sh.tile[1]);
  group_sync(kEvenBarrier, 256);
  latent_wait_half<1>(sh, 0, w.phase[0]);
  latent_mix_other<1>(st, sh.tile[0]);
  wgmma_wait<1>();
  if (leader) free_columns<kClusterSize>(&sh.free[1][1]);
  w.phase[0] ^= 1, w.phase[1] ^= 1;
  wgmma_wait<0>();
  if (threadIdx.x % 128 == 0) free_columns<kClusterSize>(&sh.free[0][1]);
}

template <int kClusterSize>
__device__ __forceinline__ void right_single(const AttentionArgs& a, const LatentShared& sh, LatentIterator& w, int j0,
                                             LatentState& st) {
  const int row = threadIdx.x / 32 % 4 * 16 + (threadIdx.x & 31) / 4;
  float by[2];
  barrier_arrive(sh.q_free);
  group_sync(kTopsBarrier, 256);
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float even = sh.top[row + 8 * r];
    by[r] = latent_factor(st.top[r], even, a.scale_log2);
    st.top[r] = even;
    st.sum[r] *= by[r];
  }
  st.scale(by);
  group_sync(kEvenBarrier, 256);
  latent_wait_half<1>(sh, 0, w.phase[0]);
  if (j0 + kLatentKeys > w.x.end) latent_clear_tail<1>(sh.tile[0], w.x.end - j0);
  latent_mix_other<1>(st, sh.tile[0]);
  w.phase[0] ^= 1;
  wgmma_wait<0>();
  if (threadIdx.x % 128 == 0) free_columns<kClusterSize>(&sh.free[0][1]);
}

// Tiles [begin, end) of a unit, begin a multiple of a pair's.
template <int kClusterSize, int kSide>
__device__ __forceinline__ void streamk_pairs(const AttentionArgs& a, const LatentShared& sh, LatentIterator& w,
                                              int begin, int end, LatentState& st) {
  int j0 = begin;
  for (; j0 + kLatentKeys < end; j0 += 2 * kLatentKeys) {
    if constexpr (kSide == 0) {
      left_pair<kClusterSize>(a, sh, w, j0, st);
    } else {
      right_pair<kClusterSize>(a, sh, w, j0, st);
    }
  }
  if (j0 >= end) return;
  if constexpr (kSide == 0) {
    left_single<kClusterSize>(a, sh, w, j0, st);
  } else {
    right_single<kClusterSize>(a, sh, w, j0, st);
  }
}

}  // namespace
}  // namespace tern::cuda
