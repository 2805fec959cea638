// Text from the command line, the configuration file and the environment as typed values.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "app/flags/flags.h"
#include "base/error.h"
#include "json/json.h"

namespace tern::app {

struct ValueRules {
  ValueType type = ValueType::kString;
  std::string_view choices = {};
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
};

// The value that `texts` spell: one text for most types, any number for lists. `label` ("--port", "FD_DEBUG") names the
// thing at fault. Errors: kInvalidArgument, one sentence.
Expected<json::Value> parse_value(std::string_view label, const ValueRules& rules,
                                  const std::vector<std::string>& texts);

// The value asks for nothing: it is null, empty, "none", or one of `neutral` ("a|b"; numbers compare as numbers).
bool is_neutral(std::string_view neutral, const json::Value& value);

// true/false, 1/0, yes/no, on/off in any case; nothing otherwise.
std::optional<bool> parse_bool(std::string_view text);

}  // namespace tern::app
