// One file of a hub, to the disk.
#pragma once

#include <atomic>
#include <string>

#include "app/hub/hub_files.h"
#include "app/hub/hub_http.h"
#include "app/hub/hub_progress.h"
#include "base/error.h"

namespace tern::app {

// Fetches the rest of what `incomplete` lacks, checks size and digest, and gives it the name `target`. What is there
// must be of the same digest: its name says so. `stop` ends it between two pieces. Errors: kUnavailable (what has come
// stays), kCorrupt (it does not), kIo.
struct HubTransfer {
  const HubPlan& plan;
  const HubFile& file;
  std::string commit, url, incomplete, target;
  HubProgress& progress;
  const std::atomic<bool>& stop;
};
Status run_transfer(HubHttp& http, const HubTransfer& transfer);

}  // namespace tern::app
