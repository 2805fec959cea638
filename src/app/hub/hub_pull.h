// A model of a hub, into its folder.
#pragma once

#include <cstdint>
#include <string>

#include "app/hub/hub_plan.h"
#include "base/error.h"

namespace tern::app {

struct HubPull {
  std::string folder, commit;
  int64_t bytes = 0;  // that came now
  int64_t all = 0;    // of the model
  size_t files = 0;   // of the model
};

// Fetches what the folder lacks of the revision; what an earlier run left is continued. One process per folder: others
// wait, and find it done. Prints its progress on stderr. Errors: of list_files() and run_transfer(); kResourceExhausted
// when the disk has too little room.
Expected<HubPull> pull_model(const HubPlan& plan);

}  // namespace tern::app
