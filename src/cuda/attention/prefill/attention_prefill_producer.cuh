// Attention of long rows on Hopper: what goes through shared memory, and the two warps that fill it.
//
// A unit is a KV head and up to C::kQueries queries: all heads of the group for some tokens. One warp deals units out
// to the block as it comes to them, one has the copy engine bring their queries, keys and values.
#pragma once

#include "cuda/attention/attention_unit.cuh"
#include "cuda/attention/choice.h"
#include "cuda/ptx/hopper.cuh"
#include "cuda/ptx/tensor_map.h"

namespace tern::cuda {
namespace {

using namespace hopper;

constexpr int kUnits = 2;

// The arrays as the copy engine sees them; of a paged cache keys and values are one. Tails: what a head has beyond its
// rows of 64 values, of shapes that keep it apart.
struct LongMaps {
  CUtensorMap q, k, v, q_tail, k_tail, v_tail;
};

// kD: a head's values as the scores see them, a multiple of 16, kN as the sums see them, a multiple of 8; what is
// missing reads as zero. kGroups warpgroups of 64 queries. Keys come in tiles of kKeys at fixed positions of their row.
// kTail: of q and k the last 16 values lie in rows of 32 bytes behind the others, not in rows of 64 values of their
// own.
template <int kD_, int kN_, int kGroups_, int kKeys_, int kStages_, int kPlaces_, bool kTail_ = false>
struct LongShape {
  static constexpr int kD = kD_, kN = kN_, kGroups = kGroups_, kKeys = kKeys_;
  static constexpr int kStages = kStages_, kPlaces = kPlaces_;  // tiles of keys, of values; tiles of queries
  static constexpr int kQueries = 64 * kGroups, kThreads = 128 * (kGroups + 1);
  static constexpr bool kTail = kTail_;
  static constexpr int kHalves = (kD + 63) / 64,
                       kWhole = kTail ? kD / 64 : kHalves;  // rows of 64 values: of v, of q and k
  static constexpr int kHalfBytes = kKeys * 128, kTileBytes = kHalves * kHalfBytes;
  static constexpr int kKeyBytes = kWhole * kHalfBytes + (kTail ? kKeys * 32 : 0);
  static constexpr int kQueryHalf = kQueries * 128, kQueryBytes = kWhole * kQueryHalf + (kTail ? kQueries * 32 : 0);
  static_assert(!kTail || kD % 64 == 16);
  static constexpr int kBarriers = 2 * (kPlaces + 2 * kStages + kUnits);
  static constexpr size_t kBytes = 1024 + kPlaces * kQueryBytes + kStages * (kTileBytes + kKeyBytes) + 8 * kBarriers +
                                   kUnits * sizeof(AttentionUnit);
};

// Places in shared memory with the barriers that say when they are full and when they are free again.
struct Ring {
  uint64_t *full, *free;
  char* data;
};
struct Rings {
  Ring q, k, v, unit;
  __device__ __forceinline__ const AttentionUnit& unit_at(int stage) const {
    return reinterpret_cast<const AttentionUnit*>(unit.data)[stage];
  }
};

template <int kCount>
struct Place {
  int stage = 0;
  uint32_t phase = 0;
  __device__ __forceinline__ void next() {
    if (++stage == kCount) stage = 0, phase ^= 1;
  }
};

// By all threads; a block barrier must follow.
template <class C>
__device__ Rings make_rings(char* memory) {
  char* data = memory + (1024 - (shared_address(memory) & 1023)) % 1024;
  Rings r;
  r.v.data = data, r.k.data = data + C::kStages * C::kTileBytes, r.q.data = r.k.data + C::kStages * C::kKeyBytes;
  auto* barrier = reinterpret_cast<uint64_t*>(r.q.data + C::kPlaces * C::kQueryBytes);
  r.unit.data = reinterpret_cast<char*>(barrier + C::kBarriers);
  const bool first = threadIdx.x == 0;
  const auto make = [&](Ring& ring, int count, int readers) {
    ring.full = barrier, ring.free = barrier + count, barrier += 2 * count;
    for (int i = 0; first && i < count; ++i) barrier_init(&ring.full[i], 1), barrier_init(&ring.free[i], readers);
  };
  make(r.q, C::kPlaces, C::kGroups), make(r.k, C::kStages, C::kGroups), make(r.v, C::kStages, C::kGroups);
  make(r.unit, kUnits, 128 * C::kGroups + 64);  // every thread that reads it, of the two feeding warps too
  if (first) barrier_init_done();
  return r;
}

constexpr int kPartTiles = 6, kMostParts = 32;  // tiles of a part of a unit at least; parts of a unit

// Units in the order in which they are dealt out. Of a prompt the longest first, so the last tokens of all heads; of
// pictures, whose units are alike, one head after the other, so that all blocks read the same keys. What would leave
// most blocks without work in the last turn is dealt out in parts: of its tokens, or (few units with many keys) of its
// keys, whose states long_join_kernel joins.
class Deal {
 public:
  // key_tile: keys of a tile if units may be in parts of keys, or 0.
  __device__ Deal(const AttentionArgs& a, int blocks, int most_parts, int key_tile)
      : a_(a), items_(a.plan[1]), key_tile_(key_tile), key_parts_(1) {
    if (key_tile > 0 && items_ > 0) key_parts_ = min(kMostParts, max(1, blocks / items_));
    rest_ = key_parts_ > 1 ? 0 : items_ % blocks;
    parts_ = rest_ == 0 ? 1 : min(most_parts, blocks / rest_);
  }
  __device__ int count() const { return items_ * key_parts_ + rest_ * (parts_ - 1); }
  __device__ AttentionUnit unit(int n) const {
    if (key_parts_ > 1) return part(items_ - 1 - n / key_parts_, n % key_parts_);
    const int late = n - (items_ - rest_);
    AttentionUnit u = whole(late < 0 ? items_ - 1 - n : rest_ - 1 - late / parts_);
    u.segments = 1;
    if (late >= 0 && parts_ > 1) {
      const int each = (a_.unit_tokens + parts_ - 1) / parts_, first = late % parts_ * each;
      u.token0 += first, u.position0 += first;
      u.tokens = max(0, min(each, u.tokens - first));
      u.keys = u.most();
    }
    return u;
  }
  __device__ int items() const { return items_; }
  // Part `n` of a unit's keys, without tokens if it has less parts.
  __device__ AttentionUnit part(int item, int n) const {
    AttentionUnit u = whole(item);
    u.segment = n, u.segments = min(key_parts_, max(1, u.tiles(key_tile_) / kPartTiles));
    u.slot = item * key_parts_ + n;
    if (n >= u.segments) u.tokens = 0;
    return u;
  }

 private:
  __device__ AttentionUnit whole(int item) const {
    const int row = row_of(a_.plan, a_.rows, item), n = a_.row_start[row + 1] - a_.row_start[row];
    const int index = item - a_.plan[2 + row], blocks = (n + a_.unit_tokens - 1) / a_.unit_tokens;
    if (a_.context_len != nullptr) return place_unit(a_, row, index % a_.kv_heads, 0, index / a_.kv_heads);
    return place_unit(a_, row, index / blocks, 0, index % blocks);
  }
  const AttentionArgs& a_;
  const int items_, key_tile_;
  int key_parts_, rest_, parts_;
};

// One thread deals units out until none is left; a unit of row -1 ends the work. The last block leaves the counters
// as it found them.
template <class C, bool kParts>
__device__ void deal(const AttentionArgs& a, const Rings& rings) {
  Place<kUnits> at;
  int* taken = a.plan + 3 + a.rows;
  const Deal work(a, static_cast<int>(gridDim.x), C::kGroups, kParts ? C::kKeys : 0);
  for (bool more = true; more;) {
    const int n = atomicAdd(&taken[0], 1);
    more = n < work.count();
    AttentionUnit u;
    u.row = -1;
    if (more) u = work.unit(n);
    if (more && u.tokens == 0) continue;
    barrier_wait(&rings.unit.free[at.stage], at.phase ^ 1);
    reinterpret_cast<AttentionUnit*>(rings.unit.data)[at.stage] = u;
    barrier_arrive(&rings.unit.full[at.stage]);
    at.next();
  }
  if (atomicAdd(&taken[1], 1) == static_cast<int>(gridDim.x) - 1) taken[0] = taken[1] = 0;
}

// Where pages of a sequence lie, 32 at a time, a lane for each; the next 32 are on their way meanwhile.
class Pages {
 public:
  __device__ Pages(const AttentionArgs& a, const AttentionUnit& u, int first)
      : table_(a.table + u.row * a.table_stride), block_size_(a.block_size), last_((u.keys - 1) / kPage) {
    read(first / 32 * 32);
  }
  // For the first page's 32, then for each of the 32 that follow.
  __device__ __forceinline__ void turn(int page) {
    block_ = next_block_, row_ = next_row_;
    read(page + 32);
  }
  __device__ __forceinline__ int block(int page) const { return __shfl_sync(0xffffffffu, block_, page % 32); }
  __device__ __forceinline__ int row(int page) const { return __shfl_sync(0xffffffffu, row_, page % 32); }

 private:
  __device__ __forceinline__ void read(int page) {
    const int token = min(page + static_cast<int>(threadIdx.x & 31), last_) * kPage, at = token / block_size_;
    next_block_ = table_[at], next_row_ = token - at * block_size_;
  }
  const int32_t* table_;
  int block_size_, last_, block_ = 0, row_ = 0, next_block_, next_row_;
};

// All keys, or all values, of a unit, by a whole warp; its first lane waits for places and loads.
template <class C, bool kPaged, bool kParts, bool kValues>
__device__ __forceinline__ void feed_tiles(const AttentionArgs& a, const LongMaps& maps, const AttentionUnit& u,
                                           const Ring& ring, Place<C::kStages>& at) {
  constexpr int kPages = C::kKeys / kPage, kBytes = kValues ? C::kTileBytes : C::kKeyBytes;
  const CUtensorMap* map = kValues ? &maps.v : &maps.k;
  const bool first = (threadIdx.x & 31) == 0;
  const int count = kParts ? u.end_tile(u.tiles(C::kKeys)) : u.tiles(C::kKeys);
  const int begin = kParts ? u.first_tile(u.tiles(C::kKeys)) : 0, head = u.kv_head, token = u.row_token;
  const auto wait = [&](uint64_t* full) {
    barrier_wait(&ring.free[at.stage], at.phase ^ 1);
    barrier_expect(full, kBytes);
  };
  if constexpr (kPaged) {
    const int head_row = ((kValues ? a.kv_heads : 0) + head) * a.block_size;
    Pages pages(a, u, begin * kPages);
    for (int t = begin; t < count; ++t, at.next()) {
      if (t * kPages % 32 == 0 || (kParts && t == begin)) pages.turn(t * kPages / 32 * 32);
      int block[kPages], row[kPages];
#pragma unroll
      for (int p = 0; p < kPages; ++p) {
        block[p] = pages.block(t * kPages + p), row[p] = head_row + pages.row(t * kPages + p);
      }
      if (!first) continue;
      char* to = ring.data + at.stage * kBytes;
      uint64_t* full = &ring.full[at.stage];
      wait(full);
#pragma unroll
      for (int p = 0; p < kPages; ++p) {
#pragma unroll
        for (int h = 0; h < C::kHalves; ++h) {
          load_box(to + h * C::kHalfBytes + p * kPage * 128, map, full, h * 64, row[p], block[p], kEvictNormal);
        }
      }
    }
  } else {
    for (int t = 0; t < count; ++t, at.next()) {
      if (!first) continue;
      char* to = ring.data + at.stage * kBytes;
      uint64_t* full = &ring.full[at.stage];
      wait(full);
#pragma unroll
      for (int h = 0; h < (C::kTail ? C::kWhole : C::kHalves); ++h) {
        load_box(to + h * C::kHalfBytes, map, full, h * 64, head, token + t * C::kKeys, kEvictNormal);
      }
      if constexpr (C::kTail) {
        load_box(to + C::kWhole * C::kHalfBytes, kValues ? &maps.v_tail : &maps.k_tail, full, 0, head,
                 token + t * C::kKeys, kEvictNormal);
      }
    }
  }
}

// By a whole warp: queries and keys, or values.
template <class C, bool kPaged, bool kParts, bool kValues>
__device__ void produce(const AttentionArgs& a, const LongMaps& maps, const Rings& rings) {
  const bool first = (threadIdx.x & 31) == 0;
  Place<C::kPlaces> q;
  Place<C::kStages> at;
  for (Place<kUnits> unit;; unit.next()) {
    barrier_wait(&rings.unit.full[unit.stage], unit.phase);
    const AttentionUnit& u = rings.unit_at(unit.stage);
    if (u.row < 0) return;
    if (!kValues && first) {
      char* to = rings.q.data + q.stage * C::kQueryBytes;
      barrier_wait(&rings.q.free[q.stage], q.phase ^ 1);
      constexpr int kRowBytes = C::kQueryBytes / C::kQueries;
      barrier_expect(&rings.q.full[q.stage], static_cast<uint32_t>(kRowBytes * a.chunk_heads * a.unit_tokens));
#pragma unroll
      for (int h = 0; h < C::kWhole; ++h) {
        // Rows of (token, head), as the copy engine walks through the boxes.
        load_box(to + h * C::kQueryHalf, &maps.q, &rings.q.full[q.stage], h * 64, u.head0, u.token0, kEvictFirst);
      }
    }
    if (C::kTail && !kValues && first) {
      load_box(rings.q.data + q.stage * C::kQueryBytes + C::kWhole * C::kQueryHalf, &maps.q_tail,
               &rings.q.full[q.stage], 0, u.head0, u.token0, kEvictFirst);
    }
    q.next();
    feed_tiles<C, kPaged, kParts, kValues>(a, maps, u, kValues ? rings.v : rings.k, at);
    __syncwarp();
    barrier_arrive(&rings.unit.free[unit.stage]);
  }
}

}  // namespace
}  // namespace tern::cuda
