// Traces of requests, from the environment (fastdeploy.md 10.2).
#pragma once

#include "app/config/settings.h"

namespace tern::app {

// Fills Settings::spans and what serve has to know. Errors: an endpoint that is none, headers that are no list, spans
// for a collector that is not named.
Status read_trace_settings(const Environment& environment, Settings& settings);

}  // namespace tern::app
