#include "app/config/inert.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "app/flags/values.h"

namespace tern::app {
namespace {

bool asks_for_something(const FlagSpec& flag, const FlagSet& flags, const FlagSet& defaults) {
  if (!flags.given(flag.name)) return false;
  const json::Value& value = flags.get(flag.name);
  if (value == defaults.get(flag.name) || is_neutral(flag.neutral, value)) return false;
  const json::Object* object = value.if_object();
  if (object == nullptr || flag.neutral_key.empty()) return true;
  const json::Value* key = json::find(*object, flag.neutral_key);
  return key != nullptr && !is_neutral(flag.neutral, *key);
}

}  // namespace

std::vector<Idle> idle_given(const FlagSet& flags, const Environment& environment, Support support) {
  std::vector<Idle> out;
  const FlagSet defaults;
  for (const FlagSpec& flag : flag_table()) {
    if (flag.support == support && asks_for_something(flag, flags, defaults)) {
      out.push_back({fmt::format("--{}", flag.name), std::string(flag.reason)});
    }
  }
  for (const std::string& name : environment.given_names()) {
    const VariableSpec& variable = environment.spec(name);
    if (variable.support != support) continue;
    const json::Value& value = environment.get(name);
    if (value == environment.fallback(variable) || is_neutral(variable.neutral, value)) continue;
    out.push_back({name, std::string(variable.reason)});
  }
  return out;
}

std::vector<std::string> of_other_scheduler(const FlagSet& flags, const Environment& environment) {
  const std::string_view other = environment.boolean("ENABLE_V1_KVCACHE_SCHEDULER") ? "legacy" : "v1";
  std::vector<std::string> out;
  const FlagSet defaults;
  for (const FlagSpec& flag : flag_table()) {
    if (flag.scheduler == other && asks_for_something(flag, flags, defaults))
      out.push_back(fmt::format("--{}", flag.name));
  }
  for (const std::string& name : environment.given_names()) {
    const VariableSpec& variable = environment.spec(name);
    if (variable.scheduler == other && environment.get(name) != Environment::fallback(variable)) out.push_back(name);
  }
  return out;
}

Error inert_error(const std::vector<Idle>& inert) {
  std::vector<std::string> parts;
  std::transform(inert.begin(), inert.end(), std::back_inserter(parts),
                 [](const Idle& idle) { return fmt::format("{} ({})", idle.name, idle.reason); });
  const bool one = inert.size() == 1;
  return make_error(ErrorCode::kUnsupported,
                    fmt::format("{} {} no effect in this build; leave {} out, or start anyway with --allow-inert-flags",
                                fmt::join(parts, ", "), one ? "has" : "have", one ? "it" : "them"),
                    inert.front().name);
}

std::string processor_name(std::string_view name) {
  constexpr std::string_view kPackage = "fastdeploy.model_executor.logits_processor";
  const size_t colon = name.find(':');
  if (colon == std::string_view::npos) return std::string(name);
  const std::string_view module = name.substr(0, colon);
  const bool own = module.starts_with(kPackage) && (module.size() == kPackage.size() || module[kPackage.size()] == '.');
  const std::string_view plain = name.substr(colon + 1);
  return std::string(own && (plain == kLogitBias || plain == kThinkingBudget) ? plain : name);
}

}  // namespace tern::app
