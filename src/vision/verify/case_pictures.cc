#include "vision/verify/case_pictures.h"

#include <fmt/format.h>

#include <algorithm>

#include "image/codecs/decode.h"
#include "model/config/config_reader.h"
#include "model/files/mapped_file.h"

namespace tern::vision {
namespace {

bool read_triple(const json::Object& o, std::string_view key, std::array<float, 3>& out) {
  const json::Value* v = json::find(o, key);
  if (v == nullptr || !v->is_array() || v->get_array().size() != 3) return false;
  for (size_t i = 0; i < 3; ++i) {
    if (!v->get_array()[i].is_number()) return false;
    out[i] = static_cast<float>(v->get_array()[i].to_number<double>());
  }
  return true;
}

Expected<image::Image> read_picture(const std::string& path) {
  TERN_ASSIGN_OR_RETURN(const model::MappedFile file, model::MappedFile::open(path));
  TERN_ASSIGN_OR_RETURN(image::Image image,
                        image::decode_image({reinterpret_cast<const uint8_t*>(file.data()), file.size()}, {}));
  TERN_RETURN_IF_ERROR(file.check());
  return image::convert_rgb(std::move(image));
}

// Appends the patches of one frame in both types. With a `slot` above 0 it joins the rows of the frame before.
Status append_frame(const image::Image& image, const CaseProcessor& p, const image::Normaliser& normaliser, int slot,
                    PromptPictures& out, image::Grid& grid) {
  TERN_ASSIGN_OR_RETURN(const image::Size size, image::smart_resize(p.rule, image.width(), image.height(), p.limits));
  const int width = static_cast<int>(size.width), height = static_cast<int>(size.height);
  TERN_ASSIGN_OR_RETURN(grid, image::patch_grid(p.layout, width, height));
  const size_t n = static_cast<size_t>(grid.h) * grid.w * image::patch_values(p.layout);
  if (slot > 0 && out.patches.size() < n)
    return make_error(ErrorCode::kCorrupt, "the frames of a video differ in size");
  const size_t at = out.patches.size() - (slot > 0 ? n : 0);
  out.patches.resize(at + n), out.patches16.resize(at + n);
  TERN_RETURN_IF_ERROR(
      image::make_patches(image, width, height, p.filter, p.layout, normaliser, slot, out.patches.data() + at, n));
  return image::make_patches(image, width, height, p.filter, p.layout, normaliser, slot, out.patches16.data() + at, n);
}

}  // namespace

Expected<CaseProcessor> read_processor(const json::Object& o) {
  CaseProcessor p;
  model::ConfigReader config{o};
  const std::string type = config.string_or("image_processor_type", "");
  const auto begins = [&](std::string_view head) { return type.compare(0, head.size(), head) == 0; };
  if (begins("PaddleOCRVL")) {
    p.rule = image::ResizeRule::kPaddleOcrVl, p.layout.order = image::PatchOrder::kRaster;
  } else if (begins("Ernie4_5_VL") || begins("Qwen2VL")) {
    p.rule = image::ResizeRule::kQwenVl, p.layout.order = image::PatchOrder::kBlocks;
  } else {
    return make_error(ErrorCode::kUnsupported, fmt::format("image processor \"{}\" is not known", type));
  }
  p.layout.patch = config.integer("patch_size", 1, 256);
  p.layout.merge = config.integer("merge_size", 1, 16);
  p.layout.temporal = config.integer_or("temporal_patch_size", 1, 1, 16);
  p.rescale = config.number_or("rescale_factor", p.rescale, 1e-9, 1e9);
  p.filter = static_cast<image::Filter>(config.integer_or("resample", 3, 1, 3));
  p.limits.factor = int64_t{p.layout.patch} * p.layout.merge;
  p.limits.keep_factor = true;
  if (const json::Value* size = json::find(o, "size"); size != nullptr && size->is_object()) {
    model::ConfigReader s{size->get_object()};
    p.limits.min_pixels = s.integer("shortest_edge", 1, 1 << 30);
    p.limits.max_pixels = s.integer("longest_edge", 1, 1 << 30);
    TERN_RETURN_IF_ERROR(s.status());
  }
  if (!read_triple(o, "image_mean", p.mean) || !read_triple(o, "image_std", p.std))
    config.complain("image_mean and image_std must be three numbers each");
  TERN_RETURN_IF_ERROR(config.status());
  return p;
}

Expected<PromptPictures> load_pictures(const std::string& folder, const model::GoldenPrompt& prompt,
                                       const CaseProcessor& p) {
  const image::Normaliser normaliser(image::NormaliseRule::kDouble, p.rescale, p.mean, p.std);
  PromptPictures out;
  image::Grid grid;
  for (const std::string& name : prompt.images) {
    TERN_ASSIGN_OR_RETURN(const image::Image image, read_picture(folder + "/" + name));
    TERN_RETURN_IF_ERROR(append_frame(image, p, normaliser, image::kAllSlots, out, grid));
    out.grids.push_back({1, grid.h, grid.w});
  }
  const auto together = static_cast<size_t>(p.layout.temporal);
  if (prompt.frames.size() % together != 0)
    return make_error(ErrorCode::kCorrupt, "the frames of a video do not fill their rows");
  for (size_t i = 0; i < prompt.frames.size(); ++i) {
    TERN_ASSIGN_OR_RETURN(const image::Image image, read_picture(folder + "/" + prompt.frames[i]));
    const image::Grid before = grid;
    TERN_RETURN_IF_ERROR(append_frame(image, p, normaliser, static_cast<int>(i % together), out, grid));
    if (i == 0) {
      out.grids.push_back({1, grid.h, grid.w});
    } else if (grid == before) {
      if (i % together == 0) ++out.grids.back().t;
    } else {
      return make_error(ErrorCode::kCorrupt, "the frames of a video differ in size");
    }
  }
  return out;
}

Expected<PromptLayout> lay_out(const std::vector<int32_t>& ids, const std::vector<int32_t>& placeholders,
                               const std::vector<Grid>& grids, const std::vector<int64_t>& tokens, int merge,
                               const PositionRule& rule) {
  PromptLayout out;
  out.picture_rows.assign(ids.size(), -1);
  std::vector<image::PositionSpan> spans;
  size_t item = 0;
  int64_t in_item = 0;
  int32_t next = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (std::find(placeholders.begin(), placeholders.end(), ids[i]) == placeholders.end()) continue;
    if (item == grids.size()) return make_error(ErrorCode::kCorrupt, "there are more placeholders than picture rows");
    if (in_item == 0) {
      const Grid& g = grids[item];
      const int h = g.h / merge, w = g.w / merge;
      const auto t = static_cast<int32_t>(tokens[item] / (int64_t{h} * w));
      spans.push_back({static_cast<int32_t>(i), t, h, w, rule.t_step});
    }
    out.picture_rows[i] = next++;
    if (++in_item == tokens[item]) ++item, in_item = 0;
  }
  if (item != grids.size()) return make_error(ErrorCode::kCorrupt, "there are fewer placeholders than picture rows");
  out.positions = image::make_positions(static_cast<int32_t>(ids.size()), spans, rule.advance);
  return out;
}

}  // namespace tern::vision
