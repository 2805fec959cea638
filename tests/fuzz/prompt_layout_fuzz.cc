// Prompts of ids around media: placeholders, markers and text in any order. Units must lie on placeholders, in order,
// and cover all of them; positions must be as long as the prompt.
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "content/media/profile/prompt_layout.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tern::content;
  if (size < 2) return 0;
  VisionProfile profile;
  profile.takes_video = (data[0] & 1) != 0;
  profile.image.id = 5;
  profile.video.id = (data[0] & 2) != 0 ? 5 : 6;
  const size_t count = data[1] % 8;
  if (size < 2 + count) return 0;
  std::vector<PreparedMediaPtr> media;
  for (size_t i = 0; i < count; i++) {
    const uint8_t b = data[2 + i];
    auto item = std::make_shared<PreparedMedia>();
    item->kind = (b & 1) != 0 && profile.takes_video ? MediaKind::kVideo : MediaKind::kImage;
    item->t = item->kind == MediaKind::kVideo ? 1 + (b >> 1 & 3) : 1;
    item->h = 1 + (b >> 3 & 3);
    item->w = 1 + (b >> 5);
    item->tokens = item->t * item->h * item->w;
    for (int t = 0; t < item->t; t++) item->units.push_back({.t = 1, .tokens = item->h * item->w});
    media.push_back(std::move(item));
  }
  std::vector<int32_t> ids;
  for (size_t i = 2 + count; i < size; i++) ids.push_back(data[i] % 9);
  const auto layout = layout_ids(profile, ids, media);
  if (!layout.ok()) {
    if (layout.error().message.empty()) std::abort();
    return 0;
  }
  if (layout->positions.size() != 3 * layout->ids.size()) std::abort();
  int32_t at = 0, covered = 0, placeholders = 0;
  for (const UnitSpan& unit : layout->units) {
    if (unit.begin < at || unit.end <= unit.begin || unit.end > static_cast<int32_t>(layout->ids.size())) std::abort();
    if (unit.end - unit.begin != media[unit.media]->units[unit.unit].tokens) std::abort();
    at = unit.end;
    covered += unit.end - unit.begin;
  }
  for (const int32_t id : layout->ids) placeholders += id == 5 || (profile.takes_video && id == profile.video.id);
  if (covered != placeholders || layout->image_tokens + layout->video_tokens != covered) std::abort();
  return 0;
}
