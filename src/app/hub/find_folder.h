// The folder of this machine that a model's name means.
#pragma once

#include <string>

#include "app/flags/environment.h"
#include "app/flags/flag_set.h"
#include "base/error.h"

namespace tern::app {

// The path itself, or a hub's name below FD_MODEL_CACHE (else HOME), or in a cache that the clients of Hugging Face or
// ModelScope left; with either spelling of baidu/ and PaddlePaddle/ (fastdeploy.md 12.3). "" when there is none.
// `revision`: when not "", a download of another revision does not count.
std::string find_folder(const std::string& name, const Environment& environment, const std::string& revision = "");

struct ModelWish {
  std::string name;
  std::string revision = {};  // "": any that is here, else the hub's usual one
  bool download = true;
};
// --model, --revision where it is given, --download.
ModelWish wish_of(const FlagSet& flags);
// The same as find_folder(); a name of a hub that is not here is fetched, unless that is forbidden. Errors: kNotFound,
// and those of pull_model().
Expected<std::string> obtain_folder(const ModelWish& wish, const Environment& environment);

// Whether a folder has config.json and all weights that its index names (without one: any safetensors).
bool holds_model(const std::string& folder);
// Where the clients of Hugging Face and of ModelScope keep what they fetched; "" where that is not known.
std::string hugging_face_cache(const Environment& environment);
std::string model_scope_cache(const Environment& environment);

}  // namespace tern::app
