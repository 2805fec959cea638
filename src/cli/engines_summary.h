// What several engines with a copy of the model each take (--data-parallel-size), for --dry-run and `tern inspect`.
#pragma once

#include <string>

#include "json/json.h"
#include "model/loader.h"

namespace tern::cli {

// {"engines", "cards", "weight_bytes": {"cpu": {precision: bytes}, "cuda": {...}}}: of all engines together. `ranks`:
// of each engine; a number of the summary's. `own_weights`: engines have weights of their own on a CPU, too.
json::Object describe_engines(const model::ModelSummary& summary, int engines, int ranks, bool own_weights = false);
// The same in a line.
std::string engines_line(const model::ModelSummary& summary, int engines, int ranks);

}  // namespace tern::cli
