#include "app/config/fault_settings.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace tern::app {
namespace {

bool read_number(std::string_view text, uint64_t& value) {
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && stop == text.data() + text.size() && value <= 1u << 30;
}

}  // namespace

Status fault_settings(const FlagSet& flags, const Environment& environment, engine::EngineConfig& config) {
  config.watchdog_ns = static_cast<int64_t>(flags.number("watchdog-timeout") * 1e9);
  config.plan_delay_ns = static_cast<int64_t>(environment.number("TERN_TEST_PLAN_DELAY_MS") * 1e6);
  const std::string text = environment.text("TERN_FAULT");
  if (text.empty()) return {};
  // KIND@STEP, then in any order ,rank=R and ,engine=E, each once at most.
  uint64_t step = 0;
  std::optional<uint64_t> rank, engine;
  bool good = !text.ends_with(',');
  std::vector<std::string_view> words = split(text, ',');
  const std::string_view fault = words[0], kind = fault.substr(0, fault.find('@'));
  if (kind.size() < fault.size()) good = good && read_number(fault.substr(kind.size() + 1), step) && step > 0;
  for (const std::string_view word : std::span(words).subspan(1)) {
    std::optional<uint64_t>& value = word.starts_with("rank=") ? rank : engine;
    good = good && !value && (word.starts_with("rank=") || word.starts_with("engine=")) &&
           read_number(word.substr(word.find('=') + 1), value.emplace());
  }
  if (!good || step == 0 || (kind != "trap" && kind != "hang")) {
    return make_error(ErrorCode::kInvalidArgument,
                      fmt::format("TERN_FAULT: \"{}\" is neither trap@N nor hang@N, nor one of them with ,rank=R or "
                                  ",engine=E",
                                  text),
                      "TERN_FAULT");
  }
  config.fault = kind == "trap" ? device::Fault::kTrap : device::Fault::kHang;
  config.fault_step = step;
  config.fault_rank = static_cast<int>(rank.value_or(0));
  config.fault_engine = static_cast<int>(engine.value_or(0));
  return {};
}

}  // namespace tern::app
