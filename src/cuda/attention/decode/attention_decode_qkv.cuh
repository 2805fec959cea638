// Decode attention that does the pass between the QKV projection and itself (PrepareArgs): norms of heads, rotation and
// the cache write of one token per row, by the warps that compute. Queries pass through shared memory on their way to
// the products. The newest key and value go to the cache and, as the copy engine may have read their place before that,
// into the tile that has it.
#pragma once

#include "cuda/attention/decode/attention_decode_state.cuh"
#include "cuda/attention/qkv/qkv_head.cuh"

namespace tern::cuda {
namespace {

// The four warps that compute.
__device__ __forceinline__ void computing_sync() { hopper::group_sync(1, 128); }

// A token's rotation, a lane's part.
template <int kEach>
struct Rotation {
  float c[kEach], s[kEach];
  __device__ __forceinline__ Rotation(const PrepareArgs& a, int token) {
    if (a.cos == nullptr) return;
    const int at = static_cast<int>(threadIdx.x & 31) * kEach;
#pragma unroll
    for (int j = 0; j < kEach; ++j) c[j] = a.cos[token * a.cos_row + at + j], s[j] = a.sin[token * a.sin_row + at + j];
  }
};

template <int kEach>
__device__ __forceinline__ void prepare_head(const PrepareArgs& a, const void* norm,
                                             const typename QkvHead<kEach>::Values& weight,
                                             const Rotation<kEach>& rotation, QkvHead<kEach>& head) {
  if (norm != nullptr) head.template normalise<float>(weight, a.eps);
  if (a.cos != nullptr) head.turn(rotation.c, rotation.s);
}

// The row's newest key and its value, where a piece has the tile of their place: each with one warp, the key with the
// one that scores it.
template <class S>
class Newest {
 public:
  static constexpr int kEach = S::kD / 64;
  __device__ __forceinline__ void load(const AttentionArgs& a, const DecodePiece& p) {
    const PrepareArgs& from = a.prepare;
    const int place = p.u.context - 1, warp = threadIdx.x / 32, owner = place % kDecodeTile / 16;
    if (p.from >= p.to || p.to * kDecodeTile <= place || (warp != owner && warp != (owner + 1) % 4)) return;
    value_ = warp != owner, tile_ = place / kDecodeTile, place_ = place % kDecodeTile;
    const int head = a.heads + p.u.kv_head + (value_ ? a.kv_heads : 0);
    head_.read(from.qkv + p.u.token0 * from.row + head * S::kD, from.interleaved, head_.v);
    if (!value_ && from.k_norm != nullptr) head_.read(from.k_norm, from.norm_bf16, from.interleaved, weight_);
  }
  // Behind load(): normed and rotated, and written to the cache by one of the units that share the KV head.
  __device__ __forceinline__ void finish(const AttentionArgs& a, const AttentionUnit& u,
                                         const Rotation<kEach>& rotation) {
    if (tile_ < 0) return;
    if (!value_) prepare_head(a.prepare, a.prepare.k_norm, weight_, rotation, head_);
    if (u.head0 != u.kv_head * a.decode_group) return;
    const int64_t slot = a.prepare.slots[u.token0], size = a.block_size;
    if (slot < size) return;  // the null block: padding
    char* const block = const_cast<char*>(a.cache) + slot / size * a.block_stride;
    const int64_t head = u.kv_head + (value_ ? a.kv_heads : 0);
    head_.write(reinterpret_cast<bf*>(block) + (head * size + slot % size) * S::kD, a.prepare.interleaved);
  }
  // Whether this warp has the key, or the value, of tile t.
  __device__ __forceinline__ bool mine(int t, bool value) const { return t == tile_ && value == value_; }
  // Into a stage of the ring that the copy engine is done with.
  __device__ __forceinline__ void put(bool interleaved, char* stage) const {
#pragma unroll
    for (int i = 0; i < 2 * kEach; ++i) {
      const int column = QkvHead<kEach>::place(interleaved, i / kEach, i % kEach), chunk = column / 8;
      char* const row = stage + chunk / 8 * S::kHalfBytes + place_ * 128;
      reinterpret_cast<bf*>(row + ((chunk % 8) ^ (place_ & 7)) * 16)[column % 8] =
          from_float<bf>(head_.v[i / kEach][i % kEach]);
    }
    hopper::shared_to_engine();  // which fills the stage again
    __syncwarp();
  }

 private:
  QkvHead<kEach> head_;
  typename QkvHead<kEach>::Values weight_;
  int tile_ = -1, place_ = 0;
  bool value_ = false;
};

// Queries of a unit as the narrow side of the products, and the newest key. `room`: scores of a tile that no warp reads
// any more. All loads are on their way together.
template <class S>
__device__ __forceinline__ void prepare_piece(const AttentionArgs& a, const DecodePiece& p, float* room,
                                              uint32_t (&q)[S::kN][S::kSteps][2], Newest<S>& newest) {
  constexpr int kEach = S::kD / 64, kPitch = S::kD + 8, kHeads = 2 * S::kN;  // of a warp
  static_assert(8 * S::kN * kPitch * sizeof(bf) <= S::kScores * sizeof(float));
  const PrepareArgs& from = a.prepare;
  const AttentionUnit& u = p.u;
  const int warp = threadIdx.x / 32, lane = threadIdx.x & 31;
  const float* const row = from.qkv + u.token0 * from.row + u.head0 * S::kD;
  bf* const to = reinterpret_cast<bf*>(room);
  QkvHead<kEach> heads[kHeads];
  typename QkvHead<kEach>::Values weight;
#pragma unroll
  for (int i = 0; i < kHeads; ++i) {
    if (warp + 4 * i < u.heads) heads[i].read(row + (warp + 4 * i) * S::kD, from.interleaved, heads[i].v);
  }
  const Rotation<kEach> rotation(from, u.token0);
  if (from.q_norm != nullptr) QkvHead<kEach>::read(from.q_norm, from.norm_bf16, from.interleaved, weight);
  newest.load(a, p);
#pragma unroll
  for (int i = 0; i < kHeads; ++i) {
    if (warp + 4 * i >= u.heads) continue;
    prepare_head(from, from.q_norm, weight, rotation, heads[i]);
    heads[i].write(to + (warp + 4 * i) * kPitch, from.interleaved);
  }
  computing_sync();
#pragma unroll
  for (int n = 0; n < S::kN; ++n) {
    const int i = 8 * n + lane / 4;
    const auto* at = reinterpret_cast<const uint32_t*>(to + i * kPitch + lane % 4 * 2);
#pragma unroll
    for (int k = 0; k < 2 * S::kSteps; ++k) q[n][k / 2][k % 2] = i < u.heads ? at[4 * k] : 0;
  }
  newest.finish(a, u, rotation);
}

}  // namespace
}  // namespace tern::cuda
