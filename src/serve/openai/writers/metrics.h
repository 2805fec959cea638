// `metrics` of a chunk or a choice, for collect_metrics.
#pragma once

#include <string>

#include "serve/core/generation.h"

namespace tern::serve::openai {

// Appends ,"metrics":{...}.
void append_metrics(const Generation& generation, const Choice& choice, std::string& out);

}  // namespace tern::serve::openai
