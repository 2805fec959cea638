// Which kernel takes a product with codes.
#include "cuda/gemm/codes/choice_codes.h"

#include "cuda/gemm/code_format.h"
#include "cuda/gemm/fits.h"
#include "cuda/gemm/may_fuse.h"

namespace tern::cuda {
namespace {

int64_t tiles(int64_t n, int64_t of) { return (n + of - 1) / of; }

// What tensor cores can read: 16-byte pieces of bfloat16 rows.
bool codes_aligned(const CodeGemm& g) {
  return g.x_bf16 && !g.heads && reinterpret_cast<uintptr_t>(g.x) % 16 == 0 && g.x_row % 8 == 0;
}

// Small weights whose k is cut: parts are sent from registers.
bool codes_push_fits(const Gemm& g) { return splitk_dsmem_fits(g, wgmma_split(g.n, g.k)); }

// Very few rows, of which the portable kernels are ahead on Hopper, too: weights whose bytes are soon there, and int4
// ones, of which wgmma would have to widen as much for one row as for 16.
bool portable_first(const CodeGemm& g) {
  constexpr int64_t kMostRows = 4, kSmallWeight = int64_t{8} << 20;
  return g.rows <= kMostRows && !codes_push_fits(plain_gemm(g)) &&
         (g.w.kind == CodeKind::kInt4 || int64_t{g.w.n} * g.w.k <= kSmallWeight);
}

}  // namespace

CodeTile choose_codes(const CodeGemm& g, const DeviceFacts& f) {
  constexpr int64_t kNarrowTile = 64, kWideTile = 128;  // of the weight, in a block
  if (!codes_aligned(g)) return CodeTile::kSimple;
  if (g.offsets == nullptr && !portable_first(g) && choose_codes_wgmma(plain_gemm(g), f).rows > 0)
    return CodeTile::kWgmma;
  const int64_t rows = g.offsets != nullptr ? g.rows / g.groups : g.rows;
  if (f.deterministic) return rows <= 8 ? CodeTile::kFixed8 : CodeTile::kFixed64;
  if (g.offsets != nullptr || g.w.zeros) return rows <= 8 ? CodeTile::kFew8 : CodeTile::kFixed64;
  if (rows > 64) {
    const int64_t blocks = tiles(g.w.n, kWideTile) * tiles(rows, 64);
    return blocks >= f.multiprocessors ? CodeTile::kFixed64 : CodeTile::kFew64;
  }
  const bool small = tiles(g.w.n, kNarrowTile) < f.multiprocessors;
  if (rows <= 8) return small ? CodeTile::kSmall8 : CodeTile::kFew8;
  if (rows <= 16) return small ? CodeTile::kSmall16 : CodeTile::kFew16;
  if (rows <= 32) return small ? CodeTile::kSmall32 : CodeTile::kFew32;
  return small ? CodeTile::kSmall64 : CodeTile::kFew64;
}

Gemm plain_gemm(const CodeGemm& g) {
  Gemm p;
  p.x = g.x, p.x_bf16 = g.x_bf16, p.x_row = g.x_row, p.w_bf16 = false, p.codes = g.w;
  p.bias = g.bias, p.out = g.out, p.out_bf16 = g.out_bf16, p.out_row = g.out_row;
  p.rows = g.rows, p.n = g.w.n, p.k = g.w.k, p.heads = g.heads, p.gated = g.gated;
  p.after = g.after, p.before = g.before;
  return p;
}

CodeGemm code_gemm(const Gemm& g) {
  CodeGemm c;
  c.w = g.codes, c.x = g.x, c.x_bf16 = g.x_bf16, c.x_row = g.x_row;
  c.bias = g.bias, c.out = g.out, c.out_bf16 = g.out_bf16, c.out_row = g.out_row;
  c.rows = g.rows, c.heads = g.heads, c.gated = g.gated, c.after = g.after, c.before = g.before;
  return c;
}

namespace {

// Formats that are made while loading; those of files alone, and a rank's slice that begins inside a group, have the
// portable kernels.
bool codes_wgmma_fits(const Gemm& g, const DeviceFacts& f) {
  constexpr int64_t kMostRows = 256;
  const CodeLayout& c = g.codes;
  if (!f.hopper() || !f.sm90_files || f.deterministic || c.n == 0 || c.zeros || c.shift != 0) return false;
  if (c.kind == CodeKind::kInt8 ? c.group != 0 : c.kind == CodeKind::kE4m3 && c.group != 128) return false;
  return g.x_bf16 && !g.heads && g.offsets == nullptr && g.rows > 0 && g.rows <= kMostRows && g.x_row % 8 == 0 &&
         reinterpret_cast<uintptr_t>(g.x) % 16 == 0 && (!g.gated || g.n % (2 * kStripe) == 0);
}

// What the busiest multiprocessor has to do, in times of a stripe and 128 columns. A block waits for its own steps,
// whatever it has of them, and for what begins and ends it; with 128 tokens it has a multiprocessor for itself, and
// products count more than codes.
int64_t codes_cost(const Gemm& g, const CodesWgmma& t, const DeviceFacts& f) {
  constexpr int64_t kStepAlone = 10, kBegin = 12, kCut = 6, kWideBegin = 20, kWideCut = 10;
  const int64_t each = tiles(t.tiles(g) * tiles(g.rows, t.tokens) * t.split, f.multiprocessors);
  const int64_t steps = tiles(tiles(g.k, 128), t.split), cuts = t.split == 8 ? 3 : t.split / 2;
  if (t.tokens == 128) return each * (kStepAlone * steps + kWideBegin + kWideCut * cuts);
  return (each * t.stripes > kStepAlone ? each * t.stripes : kStepAlone) * steps + kBegin + kCut * cuts;
}

}  // namespace

CodesWgmma choose_codes_wgmma(const Gemm& g, const DeviceFacts& f) {
  constexpr int64_t kSmallWeight = int64_t{16} << 20;  // values
  if (!codes_wgmma_fits(g, f)) return {};
  CodesWgmma best, t;
  t.tokens = g.rows <= 16 ? 16 : g.rows <= 32 ? 32 : g.rows <= 64 ? 64 : 128;
  t.rows = g.rows <= 64 && g.n * g.k <= kSmallWeight ? 64 : 128;
  if (codes_push_fits(g)) {
    t.rows = 64, t.stripes = 4, t.push = true, t.split = wgmma_split(g.n, g.k);
    return t;
  }
  const int most = t.rows / kStripe;
  for (t.stripes = most; t.stripes >= most - most / 4; t.stripes -= g.gated ? 2 : 1) {
    for (t.split = 1; t.split <= 8 && t.split <= tiles(g.k, 128); t.split *= 2) {
      if (best.rows == 0 || codes_cost(g, t, f) < codes_cost(g, best, f)) best = t;
    }
    if (g.after.residual != nullptr) break;  // sums of squares are of whole tiles
  }
  return best;
}

int codes_norm_width(const Gemm& g, const DeviceFacts& f) {
  constexpr int kWarp = 32;  // columns of a warp in the portable kernels
  if (g.offsets != nullptr || !f.hopper() || f.deterministic || g.codes.zeros) return 0;
  switch (choose_codes(code_gemm(g), f)) {
    case CodeTile::kWgmma:
      return codes_push_fits(g) ? kStripe : choose_codes_wgmma(g, f).rows;
    case CodeTile::kFew8:
    case CodeTile::kFew16:
    case CodeTile::kSmall8:
    case CodeTile::kSmall16:
      return kWarp;
    default:
      return 0;
  }
}

bool codes_before_norm(const Gemm& g, const DeviceFacts& f) {
  if (!may_fuse(Fusion::kNormAfter, g) || g.rows > kNormFusedRows || g.gated || g.bias != nullptr || g.out_bf16)
    return false;
  const int width = codes_norm_width(g, f);
  return width > 0 && g.n % (4 * width) == 0 && g.n / width <= kNormFusedParts;
}

bool codes_behind_norm(const Gemm& g, const DeviceFacts& f) {
  return may_fuse(Fusion::kNormBefore, g) && g.rows <= kNormFusedRows && codes_norm_width(g, f) > 0;
}

bool codes_gate_fits(const CodeGemm& g, const DeviceFacts& f) {
  return g.w.n % (2 * kStripe) == 0 && choose_codes(g, f) != CodeTile::kSimple && !widen_first(g, f);
}

bool widen_first(const CodeGemm& g, const DeviceFacts& f) {
  constexpr int64_t kLeastRows = 257;  // from here on reading a weight once more as bfloat16 costs less than it gains
  return f.wide_bytes > 0 && f.library && !f.deterministic && g.rows >= kLeastRows && g.rows <= 65535 &&
         g.offsets == nullptr && codes_aligned(g) && g.w.k % 8 == 0 &&
         static_cast<size_t>(g.w.k) * 2 * kStripe <= f.wide_bytes;
}

}  // namespace tern::cuda
