// Inside the part: how one item of a request is prepared: the profile's rules and what the request may change of them.
#pragma once

#include "base/error.h"
#include "base/hash.h"
#include "content/media/media.h"
#include "content/media/profile/vision_profile.h"

namespace tern::content {

struct ItemRules {
  image::ResizeLimits limits;
  video::SamplingRule sampling;  // of a video
};

// Pictures: min_pixels, max_pixels. Videos: these, fps, min_frames, max_frames, target_frames, frames_sample. Other
// keys are passed over. Ceilings: the profile's max_pixels, and most_frames. kInvalidArgument with a fixed text for
// values of the wrong type, out of range or above a ceiling.
Expected<ItemRules> item_rules(const VisionProfile& profile, MediaKind kind, const json::Object& kwargs,
                               int most_frames);

// Of everything that decides what comes out of equal pixels: rules of the item, constants of the profile.
Hash128 rules_digest(const VisionProfile& profile, MediaKind kind, const ItemRules& rules, bool apply_exif,
                     HashKey key);

}  // namespace tern::content
