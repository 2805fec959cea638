// What makes a running server fail on purpose, and what watches that it does not hang.
#pragma once

#include "app/flags/environment.h"
#include "app/flags/flag_set.h"
#include "base/error.h"
#include "engine/engine.h"

namespace tern::app {

// --watchdog-timeout, and for tests of the whole program TERN_FAULT (trap@N or hang@N, with ,rank=R and ,engine=E: the
// device fails or never ends at step N, counted from 1) and TERN_TEST_PLAN_DELAY_MS. kInvalidArgument for any other
// text.
Status fault_settings(const FlagSet& flags, const Environment& environment, engine::EngineConfig& config);

}  // namespace tern::app
