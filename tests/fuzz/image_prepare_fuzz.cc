// The way of a request's picture: sniff, decode, turn, resize by a model's rule, patches; sizes and rule from the
// bytes.
#include "image/codecs/probe.h"
#include "image/codecs/upright.h"
#include "image/patches.h"
#include "image/smart_resize.h"
#include "image_fuzz.h"

#include <algorithm>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tern::image;
  if (size < 8) return 0;
  const int turn = exif_orientation(data + 4, size - 4);
  if (turn < 1 || turn > 8) std::abort();
  const auto facts = probe_image({data + 4, size - 4}, fuzz_limits());
  if (facts.ok() && (facts->width < 1 || facts->height < 1)) std::abort();
  auto image = decode_image({data + 4, size - 4}, fuzz_limits());
  if (!image.ok()) return 0;
  auto upright = compose_upright(std::move(*image), sniff_format({data + 4, size - 4}), turn);
  if (!upright.ok()) return 0;
  const auto rgb = convert_rgb(std::move(*upright));
  if (!rgb.ok()) return 0;
  ResizeLimits limits;
  limits.min_pixels = 1 + data[0] * 50;
  limits.max_pixels = 1 + data[1] * 400;
  const auto fitted = smart_resize(static_cast<ResizeRule>(data[2] % 3), rgb->width(), rgb->height(), limits);
  if (!fitted.ok() || fitted->width * fitted->height > 1 << 21) return 0;
  const int w = static_cast<int>(fitted->width), h = static_cast<int>(fitted->height);
  const PatchLayout layout{14, 2, 1 + data[3] % 2, data[3] & 2 ? PatchOrder::kBlocks : PatchOrder::kRaster};
  const auto grid = patch_grid(layout, w, h);
  if (!grid.ok()) std::abort();  // smart_resize promises multiples
  static const Normaliser normaliser(NormaliseRule::kDouble, 1 / 255.0, kClipMean, kClipStd);
  std::vector<tern::bf16> out(patch_values(layout) * grid->h * grid->w), again(out.size());
  if (!make_patches(*rgb, w, h, Filter::kBicubic, layout, normaliser, kAllSlots, out.data(), out.size()).ok()) {
    std::abort();
  }
  if (!make_patches(*rgb, w, h, Filter::kBicubic, layout, normaliser, kAllSlots, again.data(), again.size(),
                    tern::Isa::kScalar)
           .ok()) {
    std::abort();
  }
  if (!std::equal(out.begin(), out.end(), again.begin(), [](auto a, auto b) { return a.bits == b.bits; })) std::abort();
  return 0;
}
