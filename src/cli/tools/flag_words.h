// How --help, docs/flags.md and the man page word what the tables of flags and variables say.
#pragma once

#include <string>
#include <string_view>

#include "app/flags/environment.h"
#include "app/flags/flags.h"

namespace tern::cli {

// "N", "TEXT", "a|b"; "" for a switch.
std::string_view type_word(app::ValueType type, std::string_view choices);
std::string default_text(std::string_view fallback, std::string_view derived);
// "--max-num-seqs, -s", without values.
std::string flag_names(const app::FlagSpec& flag);
// "acts", "inert: why", "harmless: why; refused: a|b". `mark` stands around values.
std::string status_text(const app::FlagSpec& flag, std::string_view mark = "");
std::string status_text(const app::VariableSpec& variable, std::string_view mark = "");

}  // namespace tern::cli
