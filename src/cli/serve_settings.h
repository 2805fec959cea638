// What `tern serve` and `tern serve-paddlenlp` start with.
#pragma once

#include "app/config/settings.h"
#include "base/error.h"

namespace tern::cli {

// Flags and the process's environment resolved. `paddlenlp_alone`: the environment of PaddleNLP's server says what the
// flags leave open, and only that front is served; with --paddlenlp it is served beside the OpenAI port.
Expected<app::Settings> serve_settings(app::FlagSet flags, bool paddlenlp_alone);

// The environment of PaddleNLP's server as `tern serve-paddlenlp` and as start_server take it, for --dry-run.
json::Object paddlenlp_columns(const app::Settings& settings);

}  // namespace tern::cli
