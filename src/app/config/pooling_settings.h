// Whether the server is of a pooling model, and how it pools (fastdeploy.md 1.4, 12.2).
#pragma once

#include "app/config/settings.h"

namespace tern::app {

// Reads --runner, --convert, --task and --override-pooler-config and fills what the model's loader and serve have to
// know. Errors: flags that contradict each other or the model; flags that only generating models have a use for.
Status read_pooling_settings(Settings& settings);

}  // namespace tern::app
