// The pictures of a reference case: from files to patches, as the case's processor block says.
#pragma once

#include <string>
#include <vector>

#include "base/bf16.h"
#include "base/error.h"
#include "image/patches.h"
#include "image/positions.h"
#include "image/smart_resize.h"
#include "model/verify/golden_case.h"
#include "vision/tower.h"

namespace tern::vision {

struct CaseProcessor {
  image::ResizeRule rule = image::ResizeRule::kQwenVl;
  image::ResizeLimits limits;
  image::PatchLayout layout;
  image::Filter filter = image::Filter::kBicubic;
  double rescale = 1.0 / 255.0;
  std::array<float, 3> mean{}, std{};
};
// kUnsupported for a processor that is not known.
Expected<CaseProcessor> read_processor(const json::Object& processor);

// Pictures of one prompt, one item each; the frames of a video are one item.
struct PromptPictures {
  std::vector<Grid> grids;
  std::vector<float> patches;  // [rows, patch_values], item after item
  std::vector<bf16> patches16;
};
Expected<PromptPictures> load_pictures(const std::string& folder, const model::GoldenPrompt& prompt,
                                       const CaseProcessor& processor);

struct PositionRule {
  image::AdvanceRule advance = image::AdvanceRule::kMaxAll;
  double t_step = 1.0;  // as in image::PositionSpan
};

// Where the pictures stand in a prompt, and the positions that follow.
struct PromptLayout {
  std::vector<int32_t> picture_rows;  // [tokens]: -1, or counted from 0 over all items
  image::Positions positions;
};
// `tokens`: rows of each item. kCorrupt when there are fewer or more placeholders than rows.
Expected<PromptLayout> lay_out(const std::vector<int32_t>& ids, const std::vector<int32_t>& placeholders,
                               const std::vector<Grid>& grids, const std::vector<int64_t>& tokens, int merge,
                               const PositionRule& rule);

}  // namespace tern::vision
