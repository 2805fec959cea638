// Flags with their values and where each came from.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "app/flags/flags.h"
#include "base/error.h"
#include "json/json.h"

namespace tern::app {

enum class Source : uint8_t { kDefault, kDerived, kEnvironment, kFile, kCommandLine };
std::string_view source_name(Source source);

// A value for every flag of the table; null where a flag has none.
class FlagSet {
 public:
  FlagSet();

  // Parses `texts` as the flag's type. Errors as parse_value, and the reason when flag or value is refused.
  Status set_texts(const FlagSpec& flag, const std::vector<std::string>& texts, Source source);
  void set(std::string_view name, json::Value value, Source source);

  // `name` must be in the table.
  const json::Value& get(std::string_view name) const { return entry(name).value; }
  Source source(std::string_view name) const { return entry(name).source; }
  // The user named it: command line, file or environment.
  bool given(std::string_view name) const { return entry(name).source > Source::kDerived; }
  bool has(std::string_view name) const { return !get(name).is_null(); }

  // The value as a type; it must be there and of the flag's type.
  int64_t integer(std::string_view name) const { return get(name).as_int64(); }
  int integer32(std::string_view name) const { return static_cast<int>(integer(name)); }
  double number(std::string_view name) const;
  bool boolean(std::string_view name) const { return get(name).as_bool(); }
  std::string text(std::string_view name) const;                // "" when there is none
  std::vector<std::string> texts(std::string_view name) const;  // of a list; empty when there is none

 private:
  struct Entry {
    json::Value value;
    Source source = Source::kDefault;
  };
  const Entry& entry(std::string_view name) const;
  std::unordered_map<std::string, Entry> entries_;
};

// What a command line says.
struct Arguments {
  FlagSet flags;
  bool help = false;
  std::string help_topic;  // --help=TOPIC
};

// Reads `args` (without the program's name) and the file of --config. '_' and '-' are the same in names; `--flag value`
// and `--flag=value`; `--flag` and `--no-flag` for switches; a short name may have one dash. Errors name the flag and
// the known flag that is nearest.
Expected<Arguments> parse_arguments(const std::vector<std::string>& args);

// A YAML mapping of flag names to scalars, lists or objects. Errors: kNotFound, kCorrupt, kInvalidArgument.
Status read_config_file(const std::string& path, FlagSet& flags);
Status read_config_text(const std::string& text, const std::string& path, FlagSet& flags);

}  // namespace tern::app
