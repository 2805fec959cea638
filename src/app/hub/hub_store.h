// The models by name that are on this machine.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "app/flags/environment.h"
#include "base/error.h"

namespace tern::app {

struct StoredModel {
  std::string name;      // OWNER/NAME
  std::string where;     // the hub it was fetched from; "folder": put there by hand; "hugging face cache", ...
  std::string revision;  // "" where it is not known
  std::string state;     // "whole", "unfinished"
  int64_t bytes = 0;     // of its files
  std::string folder;
};

// Below FD_MODEL_CACHE (else HOME) and in the caches that find_folder() reads; by name.
std::vector<StoredModel> list_models(const Environment& environment);
// Removes a model that this program fetched; gives the bytes. Files that are not of its record stay. Errors: kNotFound;
// kInvalidArgument for a model that was not fetched by it.
Expected<int64_t> remove_model(const std::string& name, const Environment& environment);

}  // namespace tern::app
