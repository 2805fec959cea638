#include "app/config/fault_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdint>

namespace tern::app {

Status fault_settings(const FlagSet& flags, const Environment& environment, engine::EngineConfig& config) {
  config.watchdog_ns = static_cast<int64_t>(flags.number("watchdog-timeout") * 1e9);
  config.plan_delay_ns = static_cast<int64_t>(environment.number("TERN_TEST_PLAN_DELAY_MS") * 1e6);
  const std::string text = environment.text("TERN_FAULT");
  if (text.empty()) return {};
  const auto at = text.find('@'), comma = text.find(",rank=");
  const std::string kind = text.substr(0, at);
  const auto number = [&](size_t begin, size_t end) -> uint64_t {
    uint64_t value = 0;
    const char *const first = text.data() + begin, *const last = text.data() + end;
    const auto [stop, error] = std::from_chars(first, last, value);
    return error == std::errc() && stop == last && value <= 1u << 30 ? value : UINT64_MAX;
  };
  const size_t counted = std::min(comma, text.size());
  const uint64_t step = at < counted ? number(at + 1, counted) : 0;
  const uint64_t rank = comma < text.size() ? number(comma + 6, text.size()) : 0;
  if (step == 0 || step == UINT64_MAX || rank == UINT64_MAX || (kind != "trap" && kind != "hang")) {
    return make_error(
        ErrorCode::kInvalidArgument,
        fmt::format("TERN_FAULT: \"{}\" is neither trap@N nor hang@N, nor one of them with ,rank=R", text),
        "TERN_FAULT");
  }
  config.fault = kind == "trap" ? device::Fault::kTrap : device::Fault::kHang;
  config.fault_step = step;
  config.fault_rank = static_cast<int>(rank);
  return {};
}

}  // namespace tern::app
