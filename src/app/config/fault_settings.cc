#include "app/config/fault_settings.h"

#include <fmt/format.h>

#include <charconv>

namespace tern::app {

Status fault_settings(const FlagSet& flags, const Environment& environment, engine::EngineConfig& config) {
  config.watchdog_ns = static_cast<int64_t>(flags.number("watchdog-timeout") * 1e9);
  config.plan_delay_ns = static_cast<int64_t>(environment.number("TERN_TEST_PLAN_DELAY_MS") * 1e6);
  const std::string text = environment.text("TERN_FAULT");
  if (text.empty()) return {};
  const auto at = text.find('@');
  const std::string kind = text.substr(0, at);
  const char* begin = at == std::string::npos ? nullptr : text.data() + at + 1;
  const char* end = text.data() + text.size();
  uint64_t step = 0;
  const bool counted = begin != nullptr && begin != end && std::from_chars(begin, end, step).ptr == end && step > 0;
  if (!counted || (kind != "trap" && kind != "hang")) {
    return make_error(ErrorCode::kInvalidArgument, fmt::format("TERN_FAULT: \"{}\" is neither trap@N nor hang@N", text),
                      "TERN_FAULT");
  }
  config.fault = kind == "trap" ? device::Fault::kTrap : device::Fault::kHang;
  config.fault_step = step;
  return {};
}

}  // namespace tern::app
