// The table of command-line flags: the only list of them. The parser, --help, docs/flags.md and the start-up warnings
// are made from it (fastdeploy.md 1.2 to 1.9, and Tern's own flags).
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tern::app {

enum class FlagGroup : uint8_t {
  kServer,
  kModel,
  kCapacity,
  kLoading,
  kCache,
  kPerformance,
  kDisaggregation,
  kScheduler,
  kTern,
  kMedia,
  kLimits,
};
inline constexpr FlagGroup kFlagGroups[] = {FlagGroup::kServer,         FlagGroup::kModel,     FlagGroup::kCapacity,
                                            FlagGroup::kLoading,        FlagGroup::kCache,     FlagGroup::kPerformance,
                                            FlagGroup::kDisaggregation, FlagGroup::kScheduler, FlagGroup::kTern,
                                            FlagGroup::kMedia,          FlagGroup::kLimits};
std::string_view group_title(FlagGroup group);

// kList: values separated by commas or given one after the other, or a JSON list of texts. kRepeated: one value each
// time the flag is given.
enum class ValueType : uint8_t {
  kString,
  kInt,
  kFloat,
  kBool,
  kEnum,
  kJson,
  kStringOrJson,
  kList,
  kIntList,
  kRepeated
};

// kActs: does what it says.
// kHarmless: has no effect and none is missed: kernels that change no answer, transports between FastDeploy's
// processes, details of a feature whose own flag is inert. One line at the start names it.
// kInert: promises what this build does not do. The start ends and says so; --allow-inert-flags starts with a warning.
// kRefused: the start ends with the reason.
enum class Support : uint8_t { kActs, kHarmless, kInert, kRefused };
std::string_view support_name(Support support);

struct FlagSpec {
  std::string_view name;  // as typed, without the dashes
  FlagGroup group = FlagGroup::kServer;
  ValueType type = ValueType::kString;
  std::string_view fallback = {};  // the default as it would be typed; empty: none, or derived
  std::string_view derived = {};   // what --help prints for a default that depends on other values
  std::string_view choices = {};   // kEnum: "a|b|c"
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  Support support = Support::kActs;
  std::string_view meaning = {};
  std::string_view reason = {};   // why it has no effect, or why some of its values have none or are refused
  std::string_view refused = {};  // values that are refused although the flag itself is not: "a|b"
  std::string_view aliases = {};  // other spellings: "a|b"
  // kInert: values that ask for nothing, beside the default, an empty value and "none": "a|b".
  std::string_view neutral = {};
  // kInert: a JSON object without this key, or with a neutral value of it, asks for nothing.
  std::string_view neutral_key = {};
  std::string_view scheduler = {};  // kActs: "v1" or "legacy" when it acts with that scheduler alone
};

// Every flag, by group in the order of kFlagGroups.
const std::vector<FlagSpec>& flag_table();
// By name or alias; '_' and '-' are the same. Null when there is none.
const FlagSpec* find_flag(std::string_view name);
// The known flag that is spelled most like `name` ("" when none is near).
std::string nearest_flag(std::string_view name);
// "max_num_seqs" for "max-num-seqs".
std::string with_underscores(std::string_view name);
// The parts of "a|b|c"; none of an empty text.
std::vector<std::string_view> split(std::string_view text, char separator);

// The parts of the table; flag_table() joins them.
std::span<const FlagSpec> server_flags();
std::span<const FlagSpec> model_flags();
std::span<const FlagSpec> capacity_flags();
std::span<const FlagSpec> cluster_flags();
std::span<const FlagSpec> tern_flags();
std::span<const FlagSpec> media_flags();

}  // namespace tern::app
