// Which kernel takes a product with codes.
#include "cuda/gemm/codes/choice_codes.h"

namespace tern::cuda {
namespace {

int64_t tiles(int64_t n, int64_t of) { return (n + of - 1) / of; }

// What tensor cores can read: 16-byte pieces of bfloat16 rows.
bool codes_aligned(const CodeGemm& g) {
  return g.x_bf16 && !g.heads && reinterpret_cast<uintptr_t>(g.x) % 16 == 0 && g.x_row % 8 == 0;
}

}  // namespace

CodeTile choose_codes(const CodeGemm& g, const DeviceFacts& f) {
  constexpr int64_t kNarrowTile = 64, kWideTile = 128;  // of the weight, in a block
  if (!codes_aligned(g)) return CodeTile::kSimple;
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
