#include "media/patches.h"

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <vector>

#include "base/check.h"

namespace tern::media {
namespace {

// What the vector code computes for one value (kernels.h), to compare with the definition.
float fast_value(const NormaliseTable& table, int c, float x) {
  float y = x * table.scale[c];
  if (table.rescale_divisor != 0) y = std::fma(std::fma(-y, table.rescale_divisor, x), table.scale[c], y);
  const float t = y - table.shift[c], r = table.reciprocal[c], q = t * r;
  return std::fma(std::fma(-q, table.divisor[c], t), r, q);
}

}  // namespace

Normaliser::Normaliser(NormaliseRule rule, double rescale, const std::array<float, 3>& mean,
                       const std::array<float, 3>& std) {
  TERN_CHECK(rescale > 0);
  table_.value = value_.data();
  table_.value16 = value16_.data();
  table_.rescale_divisor = rule == NormaliseRule::kDouble ? static_cast<float>(1.0 / rescale) : 0.0f;
  table_.fast = true;
  const bool folded = rule == NormaliseRule::kFolded;
  const float unfold = static_cast<float>(1.0 / rescale);
  for (int c = 0; c < 3; ++c) {
    TERN_CHECK(std[c] != 0);
    table_.scale[c] = folded ? 1.0f : static_cast<float>(rescale);
    table_.shift[c] = folded ? mean[c] * unfold : mean[c];
    table_.divisor[c] = folded ? std[c] * unfold : std[c];
    table_.reciprocal[c] = 1.0f / table_.divisor[c];
    for (int x = 0; x < 256; ++x) {
      const float scaled =
          rule == NormaliseRule::kDouble ? static_cast<float>(x * rescale) : static_cast<float>(x) * table_.scale[c];
      const float v = (scaled - table_.shift[c]) / table_.divisor[c];
      value_[256 * c + x] = v;
      value16_[256 * c + x] = to_bf16(v).bits;
      table_.fast = table_.fast && std::isfinite(v) && fast_value(table_, c, static_cast<float>(x)) == v;
    }
  }
}

Expected<Grid> patch_grid(const PatchLayout& layout, int width, int height) {
  TERN_CHECK(layout.patch > 0 && layout.temporal > 0 && layout.merge > 0);
  TERN_CHECK(layout.order == PatchOrder::kRaster || layout.merge == 2);
  const int unit = layout.patch * layout.merge;
  if (width < unit || height < unit || width % unit != 0 || height % unit != 0) {
    return make_error(ErrorCode::kInvalidArgument, "the resized picture does not divide into patches");
  }
  return Grid{1, height / layout.patch, width / layout.patch};
}

namespace {

template <class T>
Status write_patches(const Image& rgb, int width, int height, Filter filter, const PatchLayout& layout,
                     const Normaliser& normaliser, int slot, T* out, size_t out_values, Isa isa, Band band) {
  TERN_ASSIGN_OR_RETURN(const Grid grid, patch_grid(layout, width, height));
  const size_t row = patch_values(layout), area = static_cast<size_t>(layout.patch) * layout.patch;
  if (out_values < row * grid.h * grid.w) {
    return make_error(ErrorCode::kInvalidArgument, "the place for the patches is too small");
  }
  if (slot != kAllSlots && (slot < 0 || slot >= layout.temporal)) {
    return make_error(ErrorCode::kInvalidArgument, "no such place in time in a patch");
  }
  TERN_ASSIGN_OR_RETURN(RowResizer resizer, RowResizer::make(rgb, width, height, filter, isa));
  const Kernels& kernels = kernels_for(isa);
  const bool blocks = layout.order == PatchOrder::kBlocks;
  const bool all = slot == kAllSlots;
  const PatchRow patch_row{
      grid.w, layout.patch, all ? layout.temporal : 1, layout.temporal * area, blocks ? 4 * row : 2 * row, row};
  // One row of patches at a time, so that each is written in one go.
  const size_t stride = static_cast<size_t>(width) * 3;
  std::vector<uint8_t> pixels(stride * layout.patch);
  resizer.skip_to(std::clamp(band.begin, 0, grid.h) * layout.patch);
  for (int py = std::max(band.begin, 0); py < std::min(band.end, grid.h); ++py) {
    for (int y = 0; y < layout.patch; ++y) resizer.next_into(&pixels[stride * y]);
    T* at = out + (all ? 0 : slot) * area;
    at += blocks ? (static_cast<size_t>(py / 2) * grid.w * 2 + static_cast<size_t>(py % 2) * 2) * row
                 : static_cast<size_t>(py) * grid.w * row;
    if constexpr (std::is_same_v<T, float>) {
      kernels.patches_f32(normaliser.table(), pixels.data(), stride, patch_row, at);
    } else {
      kernels.patches_bf16(normaliser.table(), pixels.data(), stride, patch_row, at);
    }
  }
  return {};
}

}  // namespace

Status make_patches(const Image& rgb, int width, int height, Filter filter, const PatchLayout& layout,
                    const Normaliser& normaliser, int slot, float* out, size_t out_values, Isa isa, Band band) {
  return write_patches(rgb, width, height, filter, layout, normaliser, slot, out, out_values, isa, band);
}

Status make_patches(const Image& rgb, int width, int height, Filter filter, const PatchLayout& layout,
                    const Normaliser& normaliser, int slot, bf16* out, size_t out_values, Isa isa, Band band) {
  static_assert(sizeof(bf16) == sizeof(uint16_t) && std::is_standard_layout_v<bf16>);
  return write_patches(rgb, width, height, filter, layout, normaliser, slot, &out->bits, out_values, isa, band);
}

}  // namespace tern::media
