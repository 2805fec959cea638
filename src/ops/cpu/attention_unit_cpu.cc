#include <algorithm>
#include <cstring>
#include <limits>

#include "base/checked.h"
#include "ops/cpu/attention_cpu.h"

namespace tern::ops::cpu {
namespace {

using kernels::GemmArgs;

int64_t state_bytes(int64_t dv) { return (2 * kUnitRows + kUnitRows * padded_dv(dv)) * 4; }

// Where the keys and values of one tile lie, in the form that the matrix kernels read.
struct Tile {
  const char* k = nullptr;
  const char* v = nullptr;
  int64_t ldk = 0, ldv = 0;                            // elements per step
  const char* v_last = nullptr;                        // the pair of an odd last token with a zero beside it, or null
  const float *k_scale = nullptr, *v_scale = nullptr;  // of the tile's tokens; null: values are no codes
};

Tile packed_tile(const AttentionJob& j, const AttentionUnit& u, const char* block, int64_t offset, int64_t count,
                 const AttentionScratch& s) {
  const int64_t bs = j.block_tokens(), bytes = static_cast<int64_t>(dtype_bytes(j.cache.spec.dtype));
  const char* k = block + u.kv_head * j.dk * bs * bytes;
  const char* v = block + (j.kv_heads * j.dk + u.kv_head * j.dv) * bs * bytes;
  Tile t;
  t.v = v + offset * j.dv * bytes;
  if (j.cache.spec.dtype == DType::kF32) {
    t.k = k + offset * 4, t.ldk = bs, t.ldv = j.dv;
    return t;
  }
  t.k = k + offset * 4, t.ldk = 2 * bs, t.ldv = 2 * j.dv;
  if (count % 2 != 0) {
    // The partner of the last token may hold anything, even NaN: zero times that must not reach the sum.
    const auto* pair = reinterpret_cast<const uint16_t*>(t.v) + count / 2 * t.ldv;
    auto* copy = reinterpret_cast<uint16_t*>(s.v_tile);
    for (int64_t d = 0; d < j.dv; ++d) copy[2 * d] = pair[2 * d], copy[2 * d + 1] = 0;
    t.v_last = s.v_tile;
  }
  return t;
}

Tile latent_tile(const AttentionJob& j, const char* block, int64_t offset, int64_t count, const AttentionScratch& s) {
  const auto& t = *j.kernels;
  const int64_t bytes = static_cast<int64_t>(dtype_bytes(j.cache.spec.dtype)), row = j.dk * bytes;
  const char* rows = block + offset * row;
  const int64_t keys = std::min(round_up<int64_t>(count, 16), j.block_tokens() - offset);
  auto* words = reinterpret_cast<uint32_t*>(s.k_tile);
  const int64_t whole = row / 4;
  t.transpose32(rows, row, words, kTile, keys, whole);
  Tile tile;
  tile.k = s.k_tile;
  if (j.cache.spec.dtype == DType::kF32) {
    tile.ldk = kTile, tile.v = rows, tile.ldv = j.dk;
    return tile;
  }
  if (j.dk % 2 != 0) {
    for (int64_t i = 0; i < keys; ++i) {
      uint16_t last;
      std::memcpy(&last, rows + i * row + whole * 4, sizeof last);
      words[whole * kTile + i] = last;
    }
  }
  auto* v = reinterpret_cast<uint16_t*>(s.v_tile);
  for (int64_t i = 0; i + 1 < count; i += 2) {
    const auto* a = reinterpret_cast<const uint16_t*>(rows + i * row);
    t.interleave16(a, a + j.dk, v + i * j.dv, j.dv);
  }
  if (count % 2 != 0) {
    const auto* a = reinterpret_cast<const uint16_t*>(rows + (count - 1) * row);
    uint16_t* to = v + (count - 1) * j.dv;
    for (int64_t d = 0; d < j.dv; ++d) to[2 * d] = a[d], to[2 * d + 1] = 0;
  }
  tile.ldk = 2 * kTile, tile.v = s.v_tile, tile.ldv = 2 * j.dv;
  return tile;
}

// Codes as bf16 pairs; their scales go onto scores and probabilities.
Tile code_tile(const AttentionJob& j, const AttentionUnit& u, const char* block, int64_t offset, int64_t count,
               const AttentionScratch& s) {
  const KvSpec& spec = j.cache.spec;
  const auto widen = spec.dtype == DType::kI8 ? j.kernels->codes.widen_tile_int8 : j.kernels->codes.widen_tile_e4m3;
  const int64_t bs = j.block_tokens(), keys = std::min(round_up<int64_t>(count, 16), bs - offset);
  const char* k = block + u.kv_head * j.dk * bs + 4 * offset;
  const char* v = block + (j.kv_heads * j.dk + u.kv_head * j.dv) * bs + offset * j.dv;
  Tile t;
  t.k = s.k_tile, t.ldk = 2 * kTile;
  t.v = s.v_tile, t.ldv = 2 * j.dv;
  const kernels::WidenTile of_keys{k, 4 * bs, reinterpret_cast<uint16_t*>(s.k_tile), t.ldk, j.dk / 4, keys};
  widen(&of_keys);
  // No byte is a NaN here, so what stands beyond the last token is harmless: its probability is zero.
  const kernels::WidenTile of_values{
      v, 4 * j.dv, reinterpret_cast<uint16_t*>(s.v_tile), t.ldv, ceil_div<int64_t>(count, 4), j.dv};
  widen(&of_values);
  t.k_scale = reinterpret_cast<const float*>(block + spec.scales_offset()) + u.kv_head * bs + offset;
  t.v_scale = t.k_scale + j.kv_heads * bs;
  return t;
}

// One tile: `count` is how many of its tokens the last row sees; `next` is where the keys of the next one lie, or null.
void run_tile(const AttentionJob& j, const AttentionUnit& u, const Tile& tile, const char* next, int64_t count,
              bool first, const AttentionScratch& s, const SoftmaxState& state) {
  const auto& t = *j.kernels;
  const bool pairs = j.cache.spec.dtype != DType::kF32;
  const auto gemm = j.dot ? t.gemm_bf16 : pairs ? t.gemm_f32_bf16 : t.gemm_f32;
  const int64_t rows = u.rows(), dv16 = padded_dv(j.dv);
  GemmArgs a{};
  a.x = s.q, a.ldx = round_up<int64_t>(j.dk, 2);
  a.w = tile.k, a.ldw = tile.ldk;
  a.acc = s.s, a.ld_acc = kTile;
  a.rows = rows, a.cols = std::min(round_up<int64_t>(count, 16), kTile);
  a.ksteps = pairs ? ceil_div<int64_t>(j.dk, 2) : j.dk;
  a.prefetch = j.latent || tile.k_scale != nullptr ? nullptr : tile.v;
  gemm(&a);

  kernels::SoftmaxTile soft{};
  soft.s = s.s, soft.ld_s = kTile;
  soft.p = s.p, soft.ld_p = kTile, soft.p_bf16 = j.dot;
  soft.valid = s.valid;
  soft.m = state.m, soft.l = state.l;
  soft.acc = state.acc, soft.ld_acc = dv16, soft.dim = first ? 0 : j.dv;
  soft.rows = rows, soft.cols = std::min(round_up<int64_t>(count, 2), kTile);
  soft.scale_log2 = j.scale_log2;
  soft.s_scale = tile.k_scale, soft.p_scale = tile.v_scale;
  t.softmax_tile(&soft);

  a.x = s.p, a.ldx = kTile;
  a.w = tile.v, a.ldw = tile.ldv;
  a.acc = state.acc, a.ld_acc = dv16;
  a.cols = j.dv;
  a.accumulate = first ? 0 : 1;
  a.prefetch = next;
  const bool split = tile.v_last != nullptr;
  a.ksteps = !pairs ? count : split ? count / 2 : ceil_div<int64_t>(count, 2);
  if (a.ksteps > 0) {
    gemm(&a);
    a.accumulate = 1;
  }
  if (split) {
    a.x = s.p + (count - 1) * (j.dot ? 2 : 4);
    a.w = tile.v_last;
    a.prefetch = nullptr;
    a.ksteps = 1;
    gemm(&a);
  }
}

}  // namespace

AttentionUnit make_unit(const AttentionJob& j, int64_t sequence, int64_t index) {
  const int64_t n = j.row_start[sequence + 1] - j.row_start[sequence];
  const int64_t per_block = j.kv_heads * j.head_chunks(), tokens = j.unit_tokens();
  const int64_t blocks = ceil_div(n, tokens);
  // Late query blocks see the most keys: they go first, so that threads end together.
  const int64_t block = blocks - 1 - index / per_block, head = index % per_block;
  AttentionUnit u;
  u.sequence = sequence;
  u.kv_head = head / j.head_chunks();
  const int64_t first = head % j.head_chunks() * j.chunk_heads();
  u.head0 = u.kv_head * j.group() + first;
  u.heads = std::min(j.chunk_heads(), j.group() - first);
  u.token0 = j.row_start[sequence] + block * tokens;
  u.tokens = std::min(tokens, n - block * tokens);
  u.position0 = j.context_len[sequence] - n + block * tokens;
  return u;
}

AttentionWorkspace::AttentionWorkspace(void* memory, int64_t threads, int64_t dk, int64_t dv)
    : base_(static_cast<char*>(memory)), dk_(dk), dv_(dv), slots_((kSlotsPerThread + kSplitPerThread) * threads) {
  state_ = round_up<int64_t>(state_bytes(dv), 64);
  const int64_t k_pad = round_up<int64_t>(dk, 16);
  per_thread_ = kUnitRows * k_pad * 4 + 2 * kUnitRows * kTile * 4 + k_pad * kTile * 4 + kTile * padded_dv(dv) * 2 +
                kUnitRows * 4 + 2 * state_;
  per_thread_ = round_up<int64_t>(per_thread_, 64);
  shared_ = per_thread_ * threads;
}

SoftmaxState AttentionWorkspace::state_at(char* p) const {
  auto* f = reinterpret_cast<float*>(p);
  return {f, f + kUnitRows, f + 2 * kUnitRows};
}

AttentionScratch AttentionWorkspace::thread(int64_t t) const {
  char* p = base_ + t * per_thread_;
  auto take = [&p](int64_t bytes) {
    char* at = p;
    p += bytes;
    return at;
  };
  const int64_t k_pad = round_up<int64_t>(dk_, 16);
  AttentionScratch s;
  s.q = take(kUnitRows * k_pad * 4);
  s.s = reinterpret_cast<float*>(take(kUnitRows * kTile * 4));
  s.p = take(kUnitRows * kTile * 4);
  s.k_tile = take(k_pad * kTile * 4);
  s.v_tile = take(kTile * padded_dv(dv_) * 2);
  s.valid = reinterpret_cast<int32_t*>(take(kUnitRows * 4));
  s.segment = state_at(take(state_));
  s.total = state_at(take(state_));
  return s;
}

namespace {

// Scales of keys by channel go onto the query, which may be bf16; `room`: floats.
void scale_query(const AttentionJob& j, const float* scales, char* query, float* room) {
  auto* bits = reinterpret_cast<uint16_t*>(query);
  float* values = j.dot ? room : reinterpret_cast<float*>(query);
  if (j.dot) j.kernels->widen(bits, values, j.dk);
  for (int64_t d = 0; d < j.dk; ++d) values[d] *= scales[d];
  if (j.dot) j.kernels->narrow(values, bits, j.dk);
}

}  // namespace

void load_queries(const AttentionJob& j, const AttentionUnit& u, const AttentionScratch& s) {
  const int64_t width = round_up<int64_t>(j.dk, 2), bytes = j.dot ? 2 : 4;
  const auto in = static_cast<int64_t>(dtype_bytes(j.q.dtype));
  for (int64_t i = 0; i < u.rows(); ++i) {
    const char* src = j.q.row_bytes(u.token0 + i / u.heads) + (u.head0 + i % u.heads) * j.q.stride[1] * in;
    char* dst = s.q + i * width * bytes;
    if (in == bytes) {
      std::memcpy(dst, src, static_cast<size_t>(j.dk * bytes));
    } else {
      j.kernels->widen(reinterpret_cast<const uint16_t*>(src), reinterpret_cast<float*>(dst), j.dk);
    }
    if (width > j.dk) std::memset(dst + j.dk * bytes, 0, static_cast<size_t>(bytes));
    if (j.cache.scales.channels) scale_query(j, j.cache.scales.k + u.kv_head * j.dk, dst, s.s);
  }
}

void run_segment(const AttentionJob& j, const AttentionUnit& u, int64_t segment, const AttentionScratch& s,
                 const SoftmaxState& state) {
  const int64_t begin = segment * j.segment_tokens(), end = std::min(begin + j.segment_tokens(), u.visible());
  std::fill_n(state.m, u.rows(), -std::numeric_limits<float>::infinity());
  std::fill_n(state.l, u.rows(), 0.0f);
  const int64_t bs = j.block_tokens();
  auto block_at = [&](int64_t position) {
    const auto id = static_cast<size_t>(j.table[u.sequence * j.table_stride + position / bs]);
    return j.cache.base + id * j.cache.block_stride;
  };
  int64_t width = 0;
  for (int64_t at = begin; at < end; at += width) {
    const int64_t offset = at % bs;
    width = std::min(kTile, bs - offset);
    const int64_t count = std::min(width, end - at);
    for (int64_t i = 0; i < u.tokens; ++i) {
      const auto seen = static_cast<int32_t>(std::clamp<int64_t>(u.position0 + i + 1 - at, 0, count));
      std::fill_n(s.valid + i * u.heads, u.heads, seen);
    }
    const char* block =
        j.cache.base + static_cast<size_t>(j.table[u.sequence * j.table_stride + at / bs]) * j.cache.block_stride;
    const bool codes = j.cache.spec.quantized();
    const Tile tile = j.latent ? latent_tile(j, block, offset, count, s)
                      : codes  ? code_tile(j, u, block, offset, count, s)
                               : packed_tile(j, u, block, offset, count, s);
    const char* next = nullptr;
    if (!j.latent && !codes && at + width < u.visible()) {
      next = packed_tile(j, u, block_at(at + width), (at + width) % bs, 2, s).k;
    }
    run_tile(j, u, tile, next, count, at == begin, s, state);
  }
}

void merge_state(const AttentionJob& j, const AttentionUnit& u, const SoftmaxState& later, const SoftmaxState& total) {
  const int64_t ld = padded_dv(j.dv);
  const kernels::SoftmaxMerge a{total.m, total.l, total.acc, later.m, later.l, later.acc, ld, ld, j.dv, u.rows()};
  j.kernels->softmax_merge(&a);
}

void store_unit(const AttentionJob& j, const AttentionUnit& u, const SoftmaxState& total) {
  const auto bytes = static_cast<int64_t>(dtype_bytes(j.out_type));
  for (int64_t i = 0; i < u.rows(); ++i) {
    if (j.cache.scales.channels) {
      const float* scales = j.cache.scales.v + u.kv_head * j.dv;
      for (int64_t d = 0; d < j.dv; ++d) total.acc[i * padded_dv(j.dv) + d] *= scales[d];
    }
    char* out = j.out + ((u.token0 + i / u.heads) * j.out_token + (u.head0 + i % u.heads) * j.out_head) * bytes;
    j.kernels->store_row(total.acc + i * padded_dv(j.dv), nullptr, 1.0f / total.l[i], out, j.out_type == DType::kBF16,
                         j.dv);
  }
}

}  // namespace tern::ops::cpu
