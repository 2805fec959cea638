// --graph-optimization-config and --use-cudagraph (fastdeploy.md 8.1).
#pragma once

#include "app/flags/flag_set.h"
#include "base/error.h"
#include "engine/graph_shapes.h"

namespace tern::app {

// Keys that say how graphs are made elsewhere (warm-ups, pools, splitting) are checked for their type and change
// nothing. A key beats --use-cudagraph. Errors name the key.
Expected<engine::GraphConfig> graph_settings(const FlagSet& flags);

}  // namespace tern::app
