// How the tiles of decoding rows are dealt out to the blocks of attention_decode_tma.cuh. All units of a step stand in
// a row, each with its tiles and kDecodeExtra for what it costs besides; the row is cut into ranges of one length. The
// plan writes where every range begins.
#pragma once

#include "cuda/attention/attention_unit.cuh"

namespace tern::cuda {

inline constexpr int kDecodeBox = 16;                     // keys that are read at least
inline constexpr int kDecodeRound = 4;                    // tiles
inline constexpr int kDecodeSegment = 16;                 // tiles
inline constexpr int kDecodeExtra = 2, kDecodeLeast = 2;  // length of a unit besides its tiles; of a range at least
inline constexpr int kDecodeCounterWords = kDecodeRanges + 1;  // before the ranges; kDecodeCounters has room for both

__device__ __forceinline__ int decode_tile_count(int keys) { return max(0, keys + kDecodeTile - 1) / kDecodeTile; }
// Whether a row of so many queries is one of these, and its units.
__device__ __forceinline__ bool decode_takes(const AttentionArgs& a, int queries) {
  return a.decode_all || queries <= a.decode_tokens;
}
__device__ __forceinline__ int decode_units_of(const AttentionArgs& a, int queries) {
  // Divisions are slow, and decoding has no need of them.
  const int blocks = queries <= a.decode_tokens ? min(queries, 1) : (queries + a.decode_tokens - 1) / a.decode_tokens;
  return a.kv_heads * a.decode_chunks * blocks;
}

// Where a range begins: a tile of a unit of a row.
struct alignas(16) DecodeRange {
  int row, unit, tile;
  int head, parts;              // the range in which that unit begins, and how many ranges have tiles of it
  int context, start, queries;  // of the row
};
static_assert(sizeof(DecodeRange) == 32);

// a.decode_plan: [0] ranges in use, [2 + r] length of all rows before r.
__device__ __forceinline__ DecodeRange decode_range_at(const AttentionArgs& a, int i) {
  const int4* from = reinterpret_cast<const int4*>(a.decode_counters + kDecodeCounterWords) + 2 * i;
  const int4 x = from[0], y = from[1];
  return {x.x, x.y, x.z, x.w, y.x, y.y, y.z, y.w};
}

// The unit of that number of a row.
__device__ __forceinline__ AttentionUnit decode_unit_of(const AttentionArgs& a, int row, int number, int context,
                                                        int start, int queries) {
  AttentionUnit u;
  int chunk = 0, block = 0;
  u.kv_head = number;
  if (a.decode_chunks > 1 || number >= a.kv_heads) {
    chunk = number % a.decode_chunks, block = number / a.decode_chunks / a.kv_heads;
    u.kv_head = number / a.decode_chunks % a.kv_heads;
  }
  u.row = row, u.context = context, u.causal = true, u.segment = 0, u.segments = 1;
  u.head0 = u.kv_head * a.decode_group + chunk * a.decode_heads;
  u.heads = min(a.decode_heads, a.decode_group - chunk * a.decode_heads);
  u.token0 = start + block * a.decode_tokens;
  u.tokens = min(a.decode_tokens, queries - block * a.decode_tokens);
  u.position0 = context - queries + block * a.decode_tokens;
  return u;
}

// For a cluster of blocks instead (attention_decode_cluster.cuh): tiles [from, to) of a unit of a row, its part `part`
// of `parts`. They stand where ranges stand; a.decode_plan[0] says how many there are.
struct alignas(16) DecodeItem {
  int row, unit, from, to;
  int part, parts, context, start;
  int queries, unused[3];
};
static_assert(sizeof(DecodeItem) == 48);
__device__ __forceinline__ DecodeItem decode_item_at(const AttentionArgs& a, int i) {
  const int4* from = reinterpret_cast<const int4*>(a.decode_counters + kDecodeCounterWords) + 3 * i;
  const int4 x = from[0], y = from[1];
  return {x.x, x.y, x.z, x.w, y.x, y.y, y.z, y.w, from[2].x, {}};
}

// Nodes of a range lie together: a part that does not begin its unit may leave many, one that does three at most.
__device__ __forceinline__ int decode_slot(const AttentionArgs& a, int range, bool begins) {
  return begins ? a.decode_ranges * a.decode_capacity + 3 * range : a.decode_capacity * range;
}

// Tiles [from, to) of a unit.
struct DecodePiece {
  AttentionUnit u;
  int from, to;
  int known;  // keys of earlier steps
  int range, head, parts;
  __device__ int slot(const AttentionArgs& a) const { return decode_slot(a, range, from == 0); }
};

// The pieces of a range.
class DecodeIterator {
 public:
  __device__ DecodeIterator(const AttentionArgs& a, int range)
      : a_(a), range_(range), at_(decode_range_at(a, range)), end_(decode_range_at(a, range + 1)) {}
  __device__ __forceinline__ bool next(DecodePiece& p) {
    while (at_.row < a_.rows && at_.unit >= decode_units_of(a_, at_.queries)) next_row();
    if (at_.row > end_.row || (at_.row == end_.row && at_.unit > end_.unit)) return false;
    const bool last = at_.row == end_.row && at_.unit == end_.unit;
    if (last && at_.tile >= end_.tile) return false;
    p.range = range_, p.from = at_.tile, p.known = at_.context - at_.queries;
    p.to = last ? end_.tile : decode_tile_count(at_.context);
    const bool inside = at_.tile > 0;  // one of both knows into how many parts it is cut
    p.head = inside ? at_.head : last ? end_.head : range_;
    p.parts = inside ? at_.parts : last ? end_.parts : 1;
    p.u = decode_unit_of(a_, at_.row, at_.unit, at_.context, at_.start, at_.queries);
    p.to = min(p.to, decode_tile_count(p.u.most()));
    ++at_.unit, at_.tile = 0;
    return true;
  }

 private:
  __device__ __forceinline__ void next_row() {
    ++at_.row, at_.unit = 0;
    if (at_.row >= a_.rows) return;
    at_.context = a_.context_len[at_.row], at_.start = a_.row_start[at_.row];
    at_.queries = a_.row_start[at_.row + 1] - at_.start;
    if (!decode_takes(a_, at_.queries)) at_.queries = 0;
  }
  const AttentionArgs& a_;
  int range_;
  DecodeRange at_, end_;
};

// Where the parts of a unit begin. A lane has one of 32 parts, so that all are read together; every lane of the warp
// asks for the same.
class DecodeParts {
 public:
  __device__ DecodeParts(const AttentionArgs& a, const DecodePiece& p) : a_(a), head_(p.head), parts_(p.parts) {
    read(0);
  }
  __device__ __forceinline__ int begin(int part) {
    if (part >= first_ + 32) read(part);
    return __shfl_sync(0xffffffffu, mine_, part - first_);
  }

 private:
  __device__ __forceinline__ void read(int first) {
    first_ = first;
    const int part = first + static_cast<int>(threadIdx.x & 31);
    mine_ = part > 0 && part < parts_ ? decode_range_at(a_, head_ + part).tile : 0;
  }
  const AttentionArgs& a_;
  int head_, parts_;
  int first_ = 0, mine_ = 0;
};

// The nodes that the parts of a unit left, in order. Each is a state up to tile `end`: of tiles or the beginning of a
// round (level 0), of rounds or the beginning of a segment (1), of segments (2).
class DecodeNodes {
 public:
  int level = 0, end = 0;
  __device__ DecodeNodes(const AttentionArgs& a, const DecodePiece& p, DecodeParts& parts)
      : a_(a), p_(p), parts_(parts) {}
  __device__ __forceinline__ int slot() const { return slot_; }
  __device__ __forceinline__ bool next() {
    while (end >= to_) {
      if (part_ == p_.parts) return false;
      from_ = end = next_;
      to_ = decode_tile_count(p_.u.most());
      slot_ = decode_slot(a_, p_.head + part_, part_ == 0) - 1;
      if (++part_ < p_.parts) to_ = min(to_, next_ = parts_.begin(part_));
    }
    step();
    ++slot_;
    return true;
  }

 private:
  __device__ __forceinline__ void step() {
    const int t = end, segment = to_ / kDecodeSegment * kDecodeSegment, round = to_ / kDecodeRound * kDecodeRound;
    level = 0;
    if (t / kDecodeRound * kDecodeRound < from_) {
      end = t + 1;
    } else if (t / kDecodeSegment * kDecodeSegment < from_) {
      end = min(t + kDecodeRound, to_);
    } else if (t % kDecodeSegment != 0) {
      end = to_;
    } else if (from_ == 0 && t == 0 && segment > 0) {
      level = 2, end = segment;
    } else if (from_ > 0 && t + kDecodeSegment <= to_) {
      level = 1, end = t + kDecodeSegment;
    } else if (round > t) {
      level = 1, end = round;
    } else {
      end = to_;
    }
  }
  const AttentionArgs& a_;
  const DecodePiece& p_;
  DecodeParts& parts_;
  int part_ = 0, next_ = 0, from_ = 0, to_ = 0, slot_ = 0;
};

}  // namespace tern::cuda
