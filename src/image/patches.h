// From pixels to the patch matrix of a vision tower, in one pass: resized row by resized row is normalised and written
// where its patches stand. No whole resized picture is kept.
#pragma once

#include <array>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/bf16.h"
#include "base/cpu_isa.h"
#include "base/error.h"
#include "image/image.h"
#include "image/kernels.h"
#include "image/resize.h"

namespace tern::image {

// How the arithmetic of the original rounds (all results are float32, then bfloat16 where asked).
enum class NormaliseRule : uint8_t {
  kFloat,   // x * rescale, - mean, / std, each in float32 (FastDeploy's ERNIE-4.5-VL, on the device)
  kDouble,  // x * rescale in float64, rounded to float32; then as above (NumPy processors: PaddleOCR-VL, Qwen2.5-VL)
  kFolded,  // (x - mean / rescale) / (std / rescale) in float32 (Hugging Face's fast processors)
};

class Normaliser {
 public:
  // rescale > 0; std must not be 0.
  Normaliser(NormaliseRule rule, double rescale, const std::array<float, 3>& mean, const std::array<float, 3>& std);

  const NormaliseTable& table() const { return table_; }
  float value(int channel, uint8_t x) const { return value_[256 * channel + x]; }
  Normaliser(const Normaliser&) = delete;  // the table points into the object
  Normaliser& operator=(const Normaliser&) = delete;

 private:
  std::array<float, 768> value_{};
  std::array<uint16_t, 768> value16_{};
  NormaliseTable table_{};
};

// CLIP's constants (ERNIE-4.5-VL, Qwen2.5-VL).
inline constexpr std::array<float, 3> kClipMean{0.48145466f, 0.4578275f, 0.40821073f};
inline constexpr std::array<float, 3> kClipStd{0.26862954f, 0.26130258f, 0.27577711f};

enum class PatchOrder : uint8_t {
  kRaster,  // row by row (PaddleOCR-VL)
  kBlocks,  // 2 x 2 blocks row by row, inside a block (0,0) (0,1) (1,0) (1,1) (ERNIE-4.5-VL, Qwen2.5-VL)
};

struct PatchLayout {
  int patch = 14;
  int merge = 2;
  int temporal = 1;  // frames per patch; a patch's row is [3][temporal][patch][patch]
  PatchOrder order = PatchOrder::kRaster;
};

struct Grid {
  int t = 1, h = 0, w = 0;  // in patches
  friend bool operator==(const Grid&, const Grid&) = default;
};

// The resized size must be a multiple of patch x merge (kInvalidArgument otherwise).
Expected<Grid> patch_grid(const PatchLayout& layout, int width, int height);
inline size_t patch_values(const PatchLayout& layout) {
  return size_t{3} * layout.temporal * layout.patch * layout.patch;
}
// Placeholders of one picture: patches / merge^2.
inline int64_t picture_tokens(const PatchLayout& layout, const Grid& grid) {
  return int64_t{grid.t} * grid.h * grid.w / (layout.merge * layout.merge);
}

// Which of the temporal places of each patch: this one repeats a still picture in all of them.
inline constexpr int kAllSlots = -1;
// Rows of patches [begin, end) of the grid.
struct Band {
  int begin = 0, end = INT_MAX;
};

// The patches of frames of one size, resized to width x height. Any number of threads may write bands at once.
class PatchMaker {
 public:
  // Errors: as patch_grid and make_resize_tables.
  static Expected<PatchMaker> make(int from_width, int from_height, int width, int height, Filter filter,
                                   const PatchLayout& layout, const Normaliser& normaliser, Isa isa = active_isa());

  const Grid& grid() const { return grid_; }
  // Rows of the frame that are read for a band.
  Rows source_rows(const Band& band) const;
  // Into out[rows of the grid * its columns][patch_values]; rows outside the band stay as they are. Errors: as
  // RowResizer::make, kInvalidArgument for a slot that is not there or an `out` that is too small.
  Status write(const Image& rgb, int slot, float* out, size_t out_values, const Band& band = {}) const;
  Status write(const Image& rgb, int slot, bf16* out, size_t out_values, const Band& band = {}) const;

 private:
  PatchMaker(const PatchLayout& layout, const Normaliser& normaliser, Isa isa)
      : layout_(layout), normaliser_(&normaliser), isa_(isa) {}
  template <class T>
  Status write_values(const Image& rgb, int slot, T* out, size_t out_values, const Band& band) const;

  PatchLayout layout_;
  const Normaliser* normaliser_;
  Isa isa_;
  Grid grid_;
  int width_ = 0;
  std::shared_ptr<const ResizeTables> tables_;
};

// All patches of one frame.
template <class T>
Status make_patches(const Image& rgb, int width, int height, Filter filter, const PatchLayout& layout,
                    const Normaliser& normaliser, int slot, T* out, size_t out_values, Isa isa = active_isa()) {
  TERN_ASSIGN_OR_RETURN(const PatchMaker maker,
                        PatchMaker::make(rgb.width(), rgb.height(), width, height, filter, layout, normaliser, isa));
  return maker.write(rgb, slot, out, out_values);
}

}  // namespace tern::image
