// The small commands' options, over CLI11. `serve` has its own parser: its flags come from a table with rules of their
// own (either dash in names, kinds of support, files), which CLI11 would only get in the way of.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

namespace tern::app {

// Parses `args`. Nothing when the command may go on; otherwise help or one line about the mistake was printed and the
// value is the exit status.
std::optional<int> parse_options(CLI::App& options, const std::vector<std::string>& args);

}  // namespace tern::app
