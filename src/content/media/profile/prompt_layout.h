// Prompt ids with every placeholder expanded, and where the pictures lie in them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "content/media/media.h"
#include "content/media/profile/vision_profile.h"
#include "content/text/tokenizer.h"

namespace tern::content {

struct UnitSpan {
  size_t media = 0, unit = 0;  // media[media]->units[unit]
  int32_t begin = 0, end = 0;  // its placeholders among the ids
};

struct PromptLayout {
  std::vector<int32_t> ids;
  std::vector<UnitSpan> units;     // ordered by begin
  std::vector<int32_t> positions;  // [3, ids]
  int32_t rope_delta = 0;
  int32_t image_tokens = 0, video_tokens = 0;
};

// Splits the rendered prompt at the profile's placeholders, tokenizes the text between them without special additions,
// and inserts markers and placeholder ids (models-ernie-paddleocr.md 5.8, 6.5). Linear in the length of the result.
// kInvalidArgument when the numbers of placeholders and media differ. Placeholder ids that come from the client's own
// text do not count as pictures: `media` is matched with what the template wrote for them, see the implementation.
// `bounds` holds for each text between placeholders.
Expected<PromptLayout> layout_prompt(const VisionProfile& profile, std::string_view rendered,
                                     const Tokenizer& tokenizer, std::span<const PreparedMediaPtr> media,
                                     const EncodeBounds& bounds = {});
// The same for a prompt that came as ids: runs of one placeholder id each are expanded.
Expected<PromptLayout> layout_ids(const VisionProfile& profile, std::span<const int32_t> ids,
                                  std::span<const PreparedMediaPtr> media);

}  // namespace tern::content
