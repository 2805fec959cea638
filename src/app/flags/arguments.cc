#include <fmt/format.h>

#include <map>

#include "app/flags/flag_set.h"
#include "app/flags/values.h"

namespace tern::app {
namespace {

struct Given {
  const FlagSpec* flag = nullptr;
  std::vector<std::string> texts;
};

bool is_list(const FlagSpec& flag) { return flag.type == ValueType::kList || flag.type == ValueType::kIntList; }

// "-1" and "-0.5" are values, "-tp" and "--port" are flags.
bool looks_like_flag(const std::string& word) {
  return word.size() > 1 && word[0] == '-' && !(word[1] >= '0' && word[1] <= '9') && word[1] != '.';
}

Error usage(const std::string& message) {
  return make_error(ErrorCode::kInvalidArgument, message + " (tern serve --help lists the flags)");
}

Error unknown(std::string_view name) {
  const std::string near = nearest_flag(name);
  return usage(
      fmt::format("unknown flag --{}{}", name, near.empty() ? "" : fmt::format("; the nearest is --{}", near)));
}

class Reader {
 public:
  explicit Reader(const std::vector<std::string>& args) : args_(args) {}

  Status read(Arguments& out, std::vector<Given>& given) {
    while (at_ < args_.size()) TERN_RETURN_IF_ERROR(read_one(out, given));
    return {};
  }

 private:
  Status read_one(Arguments& out, std::vector<Given>& given) {
    const std::string& word = args_[at_++];
    if (!looks_like_flag(word)) return usage(fmt::format("unexpected argument \"{}\"", word));
    std::string_view name(word);
    name.remove_prefix(name.starts_with("--") ? 2 : 1);
    std::optional<std::string> attached;
    if (const size_t equals = name.find('='); equals != std::string_view::npos) {
      attached = std::string(name.substr(equals + 1));
      name = name.substr(0, equals);
    }
    if (name == "help" || name == "h") {
      out.help = true;
      if (attached) out.help_topic = *attached;
      return {};
    }
    const FlagSpec* flag = find_flag(name);
    if (flag == nullptr) return read_negated(name, attached, given);
    Given entry{flag, {}};
    TERN_RETURN_IF_ERROR(read_values(*flag, attached, entry.texts));
    given.push_back(std::move(entry));
    return {};
  }

  Status read_negated(std::string_view name, const std::optional<std::string>& attached, std::vector<Given>& given) {
    const bool negated = name.starts_with("no-") || name.starts_with("no_");
    const FlagSpec* flag = negated ? find_flag(name.substr(3)) : nullptr;
    if (flag == nullptr) return unknown(name);
    if (flag->type != ValueType::kBool)
      return usage(fmt::format("--{} is no switch; --no-{} is unknown", flag->name, flag->name));
    if (attached) return usage(fmt::format("--no-{} takes no value", flag->name));
    given.push_back({flag, {"false"}});
    return {};
  }

  Status read_values(const FlagSpec& flag, const std::optional<std::string>& attached,
                     std::vector<std::string>& texts) {
    if (attached) {
      texts.push_back(*attached);
      return {};
    }
    const bool next = at_ < args_.size();
    if (flag.type == ValueType::kBool) {
      const bool value = next && parse_bool(args_[at_]).has_value();
      texts.push_back(value ? args_[at_++] : "true");
      return {};
    }
    if (!next || (looks_like_flag(args_[at_]) && args_[at_].starts_with("--"))) {
      return usage(fmt::format("--{} needs a value", flag.name));
    }
    texts.push_back(args_[at_++]);
    while (is_list(flag) && at_ < args_.size() && !looks_like_flag(args_[at_])) texts.push_back(args_[at_++]);
    return {};
  }

  const std::vector<std::string>& args_;
  size_t at_ = 0;
};

}  // namespace

Expected<Arguments> parse_arguments(const std::vector<std::string>& args) {
  Arguments out;
  std::vector<Given> given;
  TERN_RETURN_IF_ERROR(Reader(args).read(out, given));
  if (out.help) return out;
  for (const Given& entry : given) {
    if (entry.flag->name == "config") TERN_RETURN_IF_ERROR(read_config_file(entry.texts.back(), out.flags));
  }
  // A flag given twice: the last one counts, but repeated ones add up.
  std::map<const FlagSpec*, std::vector<std::string>> texts;
  std::vector<const FlagSpec*> order;
  for (Given& entry : given) {
    auto [place, fresh] = texts.try_emplace(entry.flag);
    if (fresh) order.push_back(entry.flag);
    if (entry.flag->type != ValueType::kRepeated) place->second.clear();
    place->second.insert(place->second.end(), entry.texts.begin(), entry.texts.end());
  }
  for (const FlagSpec* flag : order) {
    TERN_RETURN_IF_ERROR(out.flags.set_texts(*flag, texts[flag], Source::kCommandLine));
  }
  return out;
}

}  // namespace tern::app
