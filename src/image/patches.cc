#include "image/patches.h"

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <vector>

#include "base/check.h"

namespace tern::image {
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

Expected<PatchMaker> PatchMaker::make(int from_width, int from_height, int width, int height, Filter filter,
                                      const PatchLayout& layout, const Normaliser& normaliser, Isa isa) {
  PatchMaker maker(layout, normaliser, isa);
  TERN_ASSIGN_OR_RETURN(maker.grid_, patch_grid(layout, width, height));
  TERN_ASSIGN_OR_RETURN(maker.tables_, make_resize_tables(from_width, from_height, width, height, filter));
  maker.width_ = width;
  return maker;
}

Rows PatchMaker::source_rows(const Band& band) const {
  return image::source_rows(*tables_,
                            {std::max(band.begin, 0) * layout_.patch, std::min(band.end, grid_.h) * layout_.patch});
}

template <class T>
Status PatchMaker::write_values(const Image& rgb, int slot, T* out, size_t out_values, const Band& band) const {
  const size_t row = patch_values(layout_), area = static_cast<size_t>(layout_.patch) * layout_.patch;
  if (out_values < row * grid_.h * grid_.w) {
    return make_error(ErrorCode::kInvalidArgument, "the place for the patches is too small");
  }
  if (slot != kAllSlots && (slot < 0 || slot >= layout_.temporal)) {
    return make_error(ErrorCode::kInvalidArgument, "no such place in time in a patch");
  }
  TERN_ASSIGN_OR_RETURN(RowResizer resizer, RowResizer::make(rgb, tables_, isa_));
  const Kernels& kernels = kernels_for(isa_);
  const bool blocks = layout_.order == PatchOrder::kBlocks;
  const bool all = slot == kAllSlots;
  const PatchRow patch_row{
      grid_.w, layout_.patch, all ? layout_.temporal : 1, layout_.temporal * area, blocks ? 4 * row : 2 * row, row};
  // One row of patches at a time, so that each is written in one go.
  const size_t stride = static_cast<size_t>(width_) * 3;
  std::vector<uint8_t> pixels(stride * layout_.patch);
  resizer.skip_to(std::clamp(band.begin, 0, grid_.h) * layout_.patch);
  for (int py = std::max(band.begin, 0); py < std::min(band.end, grid_.h); ++py) {
    for (int y = 0; y < layout_.patch; ++y) resizer.next_into(&pixels[stride * y]);
    T* at = out + (all ? 0 : slot) * area;
    at += blocks ? (static_cast<size_t>(py / 2) * grid_.w * 2 + static_cast<size_t>(py % 2) * 2) * row
                 : static_cast<size_t>(py) * grid_.w * row;
    if constexpr (std::is_same_v<T, float>) {
      kernels.patches_f32(normaliser_->table(), pixels.data(), stride, patch_row, at);
    } else {
      kernels.patches_bf16(normaliser_->table(), pixels.data(), stride, patch_row, at);
    }
  }
  return {};
}

Status PatchMaker::write(const Image& rgb, int slot, float* out, size_t out_values, const Band& band) const {
  return write_values(rgb, slot, out, out_values, band);
}

Status PatchMaker::write(const Image& rgb, int slot, bf16* out, size_t out_values, const Band& band) const {
  static_assert(sizeof(bf16) == sizeof(uint16_t) && std::is_standard_layout_v<bf16>);
  return write_values(rgb, slot, &out->bits, out_values, band);
}

}  // namespace tern::image
