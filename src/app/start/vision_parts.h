// What a model that sees needs beside its decoder: tower, profile and media service.
#pragma once

#include <memory>
#include <optional>

#include "app/config/settings.h"
#include "content/media/media.h"
#include "content/media/profile/vision_profile.h"
#include "content/text/tokenizer.h"
#include "engine/engine.h"
#include "json/json.h"
#include "vision/tower.h"

namespace tern::app {

// All null for a model of text, and with --deploy-modality text.
struct VisionParts {
  std::unique_ptr<vision::Tower> tower;
  std::optional<content::VisionProfile> profile;
  std::unique_ptr<content::MediaService> media;
};

// Loads the tower and starts the pool for media. Errors: tensors that are missing, files that do not parse, and
// profiles whose patches are not what the tower reads.
Expected<VisionParts> load_vision(const Settings& settings, device::Device& device,
                                  const content::Tokenizer* tokenizer);

// The same without the tower: what a server that answers from a script needs.
Expected<VisionParts> load_media(const Settings& settings, const content::Tokenizer* tokenizer);

// Sizes of the engine's buffers for pictures: the largest item that the profile and the context let in.
engine::VisionConfig vision_config(const Settings& settings, const content::VisionProfile& profile, int merge);

// The profile of the settings' model, without tokenizer files or weights. Nothing for a model of text.
Expected<std::optional<content::VisionProfile>> read_profile(const Settings& settings,
                                                             const content::Tokenizer* tokenizer);
// {"videos", "max_image_tokens", "max_image_patches", ...} for --dry-run and `tern inspect`.
json::Object describe_profile(const content::VisionProfile& profile);

}  // namespace tern::app
