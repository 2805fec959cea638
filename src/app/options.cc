#include "app/options.h"

#include <fmt/format.h>

#include <algorithm>

#include "app/report.h"

namespace tern::app {

std::optional<int> parse_options(CLI::App& options, const std::vector<std::string>& args) {
  // CLI11 takes the words from the back and reports by exceptions; they end here.
  std::vector<std::string> reversed(args.rbegin(), args.rend());
  try {
    options.parse(reversed);
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", options.help());
    return 0;
  } catch (const CLI::ParseError& error) {
    std::string line = error.what();
    std::replace(line.begin(), line.end(), '\n', ' ');
    fmt::print(stderr, "tern: {} (--help lists the options)\n", line);
    return kUsageExit;
  }
  return std::nullopt;
}

}  // namespace tern::app
