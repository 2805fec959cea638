// Every environment variable Tern knows, and their values. This is the only place that reads the environment (spec
// fastdeploy.md 1.12).
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "app/flags/flags.h"
#include "base/error.h"
#include "json/json.h"

namespace tern::app {

enum class VariableGroup : uint8_t {
  kLogging,
  kSource,
  kRequests,
  kScheduling,
  kKernels,
  kClusters,
  kTern,
  kPaddleNlp
};
inline constexpr VariableGroup kVariableGroups[] = {
    VariableGroup::kLogging, VariableGroup::kSource,   VariableGroup::kRequests, VariableGroup::kScheduling,
    VariableGroup::kKernels, VariableGroup::kClusters, VariableGroup::kTern};
std::string_view group_title(VariableGroup group);

struct VariableSpec {
  std::string_view name;  // a trailing '*' stands for every variable that begins so
  VariableGroup group = VariableGroup::kLogging;
  ValueType type = ValueType::kString;
  std::string_view fallback = {};
  std::string_view choices = {};
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  Support support = Support::kActs;
  std::string_view meaning = {};
  std::string_view reason = {};     // as of a flag
  std::string_view neutral = {};    // the same
  std::string_view refused = {};    // the same
  std::string_view scheduler = {};  // the same
  std::string_view script = {};     // PaddleNLP's variables: what start_server exports where the user sets none
};

const std::vector<VariableSpec>& variable_table();
std::span<const VariableSpec> acting_variables();
std::span<const VariableSpec> idle_variables();
std::span<const VariableSpec> hub_variables();
// The variables of PaddleNLP's server (paddlenlp-server.md 1.1), which only that front reads. What both servers have
// (FD_LOG_DIR, FD_DEBUG, FD_LOG_BACKUP_COUNT) stands in variable_table().
std::span<const VariableSpec> paddlenlp_variables();

class Environment {
 public:
  using Pairs = std::vector<std::pair<std::string, std::string>>;
  // Every variable at its default.
  Environment();
  // Types every known variable in `pairs`; an empty value counts as unset. Errors name the variable. `also`: rows known
  // beside variable_table().
  static Expected<Environment> from(const Pairs& pairs, std::span<const VariableSpec> also = {});
  // The process's environment.
  static Pairs of_process();

  // `name` must be in the table.
  const json::Value& get(std::string_view name) const;
  bool given(std::string_view name) const { return given_.contains(std::string(name)); }
  // The row of a variable that was given.
  const VariableSpec& spec(std::string_view name) const { return *given_.at(std::string(name)); }
  // What a variable of this row is when it is not given; null when it has no default.
  static json::Value fallback(const VariableSpec& spec);
  bool boolean(std::string_view name) const { return get(name).as_bool(); }
  int64_t integer(std::string_view name) const { return get(name).as_int64(); }
  double number(std::string_view name) const { return get(name).as_double(); }
  std::string text(std::string_view name) const;
  std::vector<std::string> texts(std::string_view name) const;

  // Another value for a variable of the table, as if it had been the default.
  void set(std::string_view name, json::Value value);

  // Names given, sorted; FD_ names that are not known.
  const std::vector<std::string>& given_names() const { return order_; }
  const std::vector<std::string>& unknown() const { return unknown_; }

 private:
  std::unordered_map<std::string, json::Value> values_;
  std::unordered_map<std::string, const VariableSpec*> given_;
  std::vector<std::string> order_, unknown_;
};

}  // namespace tern::app
