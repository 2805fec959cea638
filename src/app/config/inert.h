// What was given and has no effect in this build. The tables say of every flag and variable which class it is of.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "app/flags/environment.h"
#include "app/flags/flag_set.h"

namespace tern::app {

// A flag or variable that was given with a value that asks for something.
struct Idle {
  std::string name;    // "--quantization", "FD_TRACE"
  std::string reason;  // why it has no effect
};

// Flags and variables of class `support` (kInert or kHarmless) among those given: flags in the order of the table, then
// variables by name. With kInert also inert values of flags that act.
std::vector<Idle> idle_given(const FlagSet& flags, const Environment& environment, Support support);

// Names, in the order of idle_given(), that act with the scheduler that does not run and were given another value than
// the default.
std::vector<std::string> of_other_scheduler(const FlagSet& flags, const Environment& environment);

// The line that ends a start because of them: what, why, and the flag that starts anyway. `inert` is not empty.
Error inert_error(const std::vector<Idle>& inert);

// FastDeploy's own logits processors. The second has no effect.
inline constexpr std::string_view kLogitBias = "LogitBiasLogitsProcessor";
inline constexpr std::string_view kThinkingBudget = "ThinkingBudgetLogitsProcessor";
// "LogitBiasLogitsProcessor" for "fastdeploy.model_executor.logits_processor:LogitBiasLogitsProcessor", as FastDeploy
// spells what it brings along; other names as they are.
std::string processor_name(std::string_view name);

}  // namespace tern::app
