// Which kernel takes a product with codes.
#include "cuda/gemm/blaslt.h"
#include "cuda/gemm/codes/codes_gemm.h"
#include "cuda/runtime/wide_room.h"

namespace tern::cuda {
namespace {

// What tensor cores can read: 16-byte pieces of bfloat16 rows.
bool codes_aligned(const CodeGemm& g) {
  return g.x_bf16 && !g.heads && reinterpret_cast<uintptr_t>(g.x) % 16 == 0 && g.x_row % 8 == 0;
}

}  // namespace

CodeTile choose_codes(const CodeGemm& g, device::Stream stream) {
  constexpr int64_t kNarrowTile = 64, kWideTile = 128;  // of the weight, in a block
  if (!codes_aligned(g)) return CodeTile::kSimple;
  const StreamState& s = state(stream);
  const int64_t rows = g.offsets != nullptr ? g.rows / g.groups : g.rows;
  if (s.deterministic) return rows <= 8 ? CodeTile::kFixed8 : CodeTile::kFixed64;
  if (g.offsets != nullptr || g.w.zeros) return rows <= 8 ? CodeTile::kFew8 : CodeTile::kFixed64;
  if (rows > 64) {
    const int64_t blocks = blocks_for(g.w.n, kWideTile) * blocks_for(rows, 64);
    return blocks >= s.multiprocessors ? CodeTile::kFixed64 : CodeTile::kFew64;
  }
  const bool small = blocks_for(g.w.n, kNarrowTile) < s.multiprocessors;
  if (rows <= 8) return small ? CodeTile::kSmall8 : CodeTile::kFew8;
  if (rows <= 16) return small ? CodeTile::kSmall16 : CodeTile::kFew16;
  if (rows <= 32) return small ? CodeTile::kSmall32 : CodeTile::kFew32;
  return small ? CodeTile::kSmall64 : CodeTile::kFew64;
}

bool codes_gate_fits(const CodeGemm& g, device::Stream stream) {
  return g.w.n % (2 * kStripe) == 0 && choose_codes(g, stream) != CodeTile::kSimple && !widen_first(g, stream);
}

bool widen_first(const CodeGemm& g, device::Stream stream) {
  constexpr int64_t kLeastRows = 257;  // from here on reading a weight once more as bfloat16 costs less than it gains
  const StreamState& s = state(stream);
  return wide_room(s).data != nullptr && s.blas != nullptr && !s.deterministic && g.rows >= kLeastRows &&
         g.rows <= 65535 && g.offsets == nullptr && codes_aligned(g) && g.w.k % 8 == 0 &&
         static_cast<size_t>(g.w.k) * 2 * kStripe <= wide_room(s).bytes;
}

Status gemm_codes(const CodeGemm& g, const void* const* weights, device::Stream stream) {
  const CodeTile tile = choose_codes(g, stream);
  const bool rows = g.w.group == 0;
  switch (g.w.kind) {
    case CodeKind::kInt8:
      if (g.w.zeros) return launch_codes_int8_zeros(g, tile, weights, stream);
      return rows ? launch_codes_int8(g, tile, weights, stream) : launch_codes_int8_groups(g, tile, weights, stream);
    case CodeKind::kInt4:
      if (g.w.zeros) return launch_codes_int4_zeros(g, tile, weights, stream);
      return rows ? launch_codes_int4(g, tile, weights, stream) : launch_codes_int4_groups(g, tile, weights, stream);
    case CodeKind::kE4m3:
      break;
  }
  return rows ? launch_codes_e4m3(g, tile, weights, stream) : launch_codes_e4m3_blocks(g, tile, weights, stream);
}

}  // namespace tern::cuda
