#include <fmt/format.h>

#include <algorithm>

#include "app/report.h"

namespace tern::app {

int report(const Error& error) {
  std::string line = error.message;
  std::replace(line.begin(), line.end(), '\n', ' ');
  fmt::print(stderr, "tern: {}\n", line);
  const bool usage =
      error.code == ErrorCode::kInvalidArgument || (error.code == ErrorCode::kUnsupported && !error.param.empty());
  return usage ? kUsageExit : kFailureExit;
}

}  // namespace tern::app
