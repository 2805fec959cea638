#include "cuda/attention/choice.h"

#include <algorithm>

#include "cuda/attention/widened.h"

namespace tern::cuda {
namespace {

int widest(const AttentionArgs& a) { return std::max(a.dk, a.dv); }

// Whether rows with these strides (elements of `bytes` bytes) can be read 16 bytes at a time.
bool aligned(const void* data, int bytes, int64_t s0, int64_t s1) {
  return reinterpret_cast<uintptr_t>(data) % 16 == 0 && s0 * bytes % 16 == 0 && s1 * bytes % 16 == 0;
}

// Whether tensor cores can read the queries and the pages of the cache.
bool pages_fit(const AttentionArgs& a) {
  // Queries of float32 beside codes keep their precision.
  if (a.code != KvCode::kNone && a.q_f32) return false;
  return !a.kv_f32 && a.dk % 8 == 0 && a.dv % 8 == 0 && a.dk <= (a.latent ? kLatentWidth : 256) &&
         a.dv <= (a.latent ? kLatentValues : 256) && aligned(a.q, a.q_f32 ? 4 : 2, a.q_token, a.q_head) &&
         aligned(a.cache, 1, a.block_stride, 0);
}

// Hopper's own kernels may run. Each of the conditions below says what its kernel can take.
bool sm90(const DeviceFacts& f) { return f.hopper() && f.sm90_files; }

bool latent_fits(const AttentionArgs& a, const DeviceFacts& f) {
  return sm90(f) && f.smem_limit >= kDecodeShared && a.latent && !a.q_f32 && !a.out_f32 && a.dk == kLatentWidth &&
         a.dv == kLatentValues && a.block_size % kLatentKeys == 0 && a.scale_log2 > 0 &&
         reinterpret_cast<uintptr_t>(a.out) % 16 == 0 && a.out_token % 8 == 0 && a.out_head % 8 == 0;
}

// Its bits are not those of decoding rows. Codes: once they are bfloat16 pages.
bool prefill_fits(const AttentionArgs& a, const DeviceFacts& f) {
  if (a.code != KvCode::kNone && widened_heads(a) == 0) return false;
  return sm90(f) && f.smem_limit >= kPrefillShared && !f.deterministic && !a.latent && !a.q_f32 && a.dk == a.dv &&
         (a.dk == 128 || a.dk == 64) && a.block_size % kPage == 0 && a.heads / a.kv_heads <= kPrefillQueries &&
         a.scale_log2 > 0 && a.out_token % 2 == 0;
}

AttentionKernel mma_kernel(const AttentionArgs& a) {
  if (a.latent) return AttentionKernel::kMmaLatent;
  if (widest(a) <= 64) return AttentionKernel::kMma64;
  return widest(a) <= 128 ? AttentionKernel::kMma128 : AttentionKernel::kMma256;
}

bool decode_fits(const AttentionArgs& a) { return !a.latent && a.block_size % 16 == 0; }

// The largest clusters of which there are as many as units, or ranges.
void choose_clusters(AttentionChoice& c, int64_t units, const AttentionFacts& f) {
  for (int bits = kMostClusterBits; bits > 0; --bits) {
    c.deep = bits == kMostClusterBits && units << bits <= f.multiprocessors;
    c.clusters = c.deep ? f.clusters.deep : f.clusters.at_once[bits];
    if (units > c.clusters) continue;
    c.decode = DecodeKernel::kCluster, c.cluster_bits = bits;
    return;
  }
  c.decode = DecodeKernel::kRanges, c.clusters = 0, c.deep = false;
}

// The same in deterministic mode, for decoding rows; blocks of their clusters can have ranges, too.
void choose_deterministic(AttentionChoice& c, int64_t units, bool decoding, const AttentionFacts& f) {
  c.decode = DecodeKernel::kRangesDeterministic;
  for (int bits = kMostClusterBits; decoding && bits > 0; --bits) {
    const int clusters = f.clusters.at_once[bits];
    if (units > clusters || clusters << bits > kDecodeRanges) continue;
    c.decode = DecodeKernel::kClusterDeterministic, c.cluster_bits = bits, c.clusters = clusters;
    return;
  }
}

AttentionChoice choose_decode(const AttentionArgs& a, int max_query_len, const AttentionFacts& f) {
  AttentionChoice c;
  const bool own = decode_sm90_fits(a, f);
  c.units = decode_units(a, max_query_len, own);
  const int64_t units = int64_t{a.rows} * a.kv_heads * c.units.chunks;
  if (!own) {
    c.decode = DecodeKernel::kPortable;
  } else if (f.deterministic) {
    choose_deterministic(c, units, max_query_len <= c.units.tokens, f);
  } else {
    choose_clusters(c, units, f);
  }
  return c;
}

}  // namespace

bool decode_sm90_fits(const AttentionArgs& a, const DeviceFacts& f) {
  const bool codes = a.code != KvCode::kNone;
  return sm90(f) && f.smem_limit >= kDecodeShared && !a.latent && a.dk == a.dv &&
         (a.dk == 64 || a.dk == 128 || (a.dk == 256 && !codes)) && a.block_size % kDecodeTile == 0 &&
         !(codes && f.deterministic);
}

DecodeUnits decode_units(const AttentionArgs& a, int max_query_len, bool sm90) {
  const int group = a.heads / a.kv_heads;
  DecodeUnits u;
  u.chunks = (group + 15) / 16;
  u.heads = (group + u.chunks - 1) / u.chunks;
  u.wide = !sm90 || u.heads > 8 || max_query_len > 8 / u.heads;
  u.tokens = (u.wide ? 16 : 8) / u.heads;
  return u;
}

AttentionChoice choose_attention(const AttentionArgs& a, int max_query_len, const AttentionFacts& f) {
  if (!pages_fit(a)) return {.kernel = AttentionKernel::kPlain};
  if (latent_fits(a, f)) return {.kernel = AttentionKernel::kLatent};
  AttentionChoice c;
  if (decode_fits(a)) c = choose_decode(a, max_query_len, f);
  const bool all = c.decode != DecodeKernel::kNone && (f.deterministic || max_query_len <= c.units.tokens);
  if (all) return c;
  c.kernel = !prefill_fits(a, f)       ? mma_kernel(a)
             : a.code != KvCode::kNone ? AttentionKernel::kPrefillWidened
             : a.dk == 128             ? AttentionKernel::kPrefill128
                                       : AttentionKernel::kPrefill64;
  return c;
}

AttentionKernel choose_segments(const AttentionArgs& a, int64_t tokens, bool aligned, bool rotated,
                                const DeviceFacts& f) {
  if (!aligned || widest(a) > 256) return AttentionKernel::kPlain;
  const bool own = sm90(f) && f.smem_limit >= kPrefillShared && !f.deterministic && !a.q_f32 && !a.kv_f32 &&
                   a.dk <= 128 && a.scale_log2 > 0 && rotated && a.out_token % 2 == 0 &&
                   tokens * a.heads >= int64_t{kPrefillQueries} * f.multiprocessors / 2;
  return own ? AttentionKernel::kSegments : mma_kernel(a);
}

}  // namespace tern::cuda
