#include "cli/help.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <iterator>

#include "app/flags/environment.h"
#include "app/flags/flags.h"
#include "cli/commands.h"
#include "cli/tools/flag_words.h"

namespace tern::cli {
namespace {

// For comparisons: small letters, without what stands between words.
std::string plain(std::string_view text) {
  std::string result;
  for (const unsigned char c : text) {
    if (std::isalnum(c) != 0) result += static_cast<char>(std::tolower(c));
  }
  return result;
}

bool is_fastdeploys(std::string_view command) {
  constexpr std::string_view kNames[] = {"chat", "complete", "serve", "bench", "collect-env", "run-batch", "tokenizer"};
  return std::find(std::begin(kNames), std::end(kNames), command) != std::end(kNames);
}

// The group of a flag as FastDeploy's command line names it.
std::string_view fastdeploys_title(const app::FlagSpec& flag) {
  if (flag.name == "ips") return "System Configuration";
  if (flag.name == "router") return "Router";
  switch (flag.group) {
    case app::FlagGroup::kModel:
      return "Model Configuration";
    case app::FlagGroup::kCapacity:
      return "Parallel Configuration";
    case app::FlagGroup::kLoading:
      return "Load Configuration";
    case app::FlagGroup::kCache:
      return "Cache Configuration";
    case app::FlagGroup::kPerformance:
      return "Performance Tuning";
    case app::FlagGroup::kDisaggregation:
      return "Splitwise Deployment";
    default:
      return app::group_title(flag.group);
  }
}
std::string_view title_of(const app::FlagSpec& flag, bool theirs) {
  return theirs ? fastdeploys_title(flag) : app::group_title(flag.group);
}

// In the order of the table.
std::vector<std::string_view> titles(bool theirs) {
  std::vector<std::string_view> all;
  for (const app::FlagSpec& flag : app::flag_table()) {
    const std::string_view title = title_of(flag, theirs);
    if (std::find(all.begin(), all.end(), title) == all.end()) all.push_back(title);
  }
  return all;
}

std::string wrap(const std::string& text, size_t indent) {
  constexpr size_t kColumns = 110;
  std::string out;
  size_t column = indent;
  for (const std::string_view word : app::split(text, ' ')) {
    if (column + word.size() + 1 > kColumns && column > indent) {
      out.append("\n").append(indent, ' ');
      column = indent;
    } else if (!out.empty()) {
      out += ' ';
      ++column;
    }
    out += word;
    column += word.size();
  }
  return out;
}

std::string flag_entry(const app::FlagSpec& flag) {
  constexpr size_t kIndent = 6;
  std::string head = "  " + flag_names(flag);
  if (const auto word = type_word(flag.type, flag.choices); !word.empty()) head += fmt::format(" {}", word);
  std::string body = fmt::format("{} Default: {}.", flag.meaning, default_text(flag.fallback, flag.derived));
  if (const std::string status = status_text(flag); status != "acts") body += fmt::format(" [{}]", status);
  return fmt::format("{}\n{}{}\n", head, std::string(kIndent, ' '), wrap(body, kIndent));
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '|') out += '\\';
    if (c == '<') {
      out += "&lt;";
      continue;
    }
    out += c;
  }
  return out;
}

std::string value_cell(app::ValueType type, std::string_view choices) {
  if (type == app::ValueType::kBool) return "switch";
  return fmt::format("`{}`", escaped(type_word(type, choices)));
}

void append_flags(std::string& out) {
  for (const app::FlagGroup group : app::kFlagGroups) {
    out += fmt::format("\n## {}\n\n| Flag | Value | Default | Meaning | Status |\n|---|---|---|---|---|\n",
                       app::group_title(group));
    for (const app::FlagSpec& flag : app::flag_table()) {
      if (flag.group != group) continue;
      std::string names = fmt::format("`--{}`", flag.name);
      for (const std::string_view alias : app::split(flag.aliases, '|')) {
        names += fmt::format(", `{}{}`", alias.size() <= 2 ? "-" : "--", alias);
      }
      out += fmt::format("| {} | {} | {} | {} | {} |\n", names, value_cell(flag.type, flag.choices),
                         escaped(default_text(flag.fallback, flag.derived)), escaped(flag.meaning),
                         escaped(status_text(flag, "`")));
    }
  }
}

void append_variables(std::string& out) {
  for (const app::VariableGroup group : app::kVariableGroups) {
    out += fmt::format("\n### {}\n\n| Variable | Value | Default | Meaning | Status |\n|---|---|---|---|---|\n",
                       app::group_title(group));
    for (const app::VariableSpec& variable : app::variable_table()) {
      if (variable.group != group) continue;
      const bool typed = variable.support == app::Support::kActs || variable.type != app::ValueType::kString;
      out += fmt::format(
          "| `{}` | {} | {} | {} | {} |\n", variable.name, typed ? value_cell(variable.type, variable.choices) : "any",
          escaped(default_text(variable.fallback, "")), escaped(variable.meaning), escaped(status_text(variable, "`")));
    }
  }
}

}  // namespace

std::string paddlenlp_markdown() {
  std::string out = "| Variable | Value | Code | `start_server` | Meaning | Status |\n|---|---|---|---|---|---|\n";
  for (const app::VariableSpec& variable : app::paddlenlp_variables()) {
    const bool typed = variable.support == app::Support::kActs || variable.type != app::ValueType::kString;
    out += fmt::format("| `{}` | {} | {} | {} | {} | {} |\n", variable.name,
                       typed ? value_cell(variable.type, variable.choices) : "any",
                       variable.fallback.empty() ? "none" : escaped(variable.fallback),
                       variable.script.empty() ? "" : escaped(variable.script), escaped(variable.meaning),
                       escaped(status_text(variable, "`")));
  }
  return out;
}

std::string command_help() {
  const bool theirs = called_fastdeploy();
  const std::string_view name = theirs ? "fastdeploy" : "tern";
  std::string out = fmt::format("Usage: {} COMMAND [flags]\n", name);
  if (!theirs) out += "       tern --model DIR [flags]      the same as tern serve\n";
  if (!theirs) {
    out += "\nDIR is a folder, or the name of a model at a hub (OWNER/NAME), which is fetched where it is not here.\n";
  }
  out += "\nCommands:\n";
  for (const Command& command : commands()) {
    const bool shown = theirs ? is_fastdeploys(command.name) : !command.summary.empty();
    if (!shown) continue;
    out += fmt::format("  {:<16}  {}{}\n", command.name, command.summary,
                       theirs || command.alias.empty() ? "" : fmt::format(" (also: {})", command.alias));
  }
  if (theirs) out += "\nThis is tern, which has further commands: fastdeploy help lists these, tern help all.\n";
  out += fmt::format(
      "\n{0} COMMAND --help says more. {0} serve --help lists every flag; --help=WORD narrows the list to a group or a "
      "word,\n--help=listgroup names the groups, --help=page shows the list in a pager.\n",
      name);
  return out;
}

std::string flag_help(std::string_view topic) {
  const bool theirs = called_fastdeploy();
  std::string out = fmt::format(
      "Usage: {} serve --model DIR [flags]\n\n"
      "In names _ and - are the same. --config FILE reads flags from a YAML file; the command line wins. Variables "
      "and\n"
      "the whole table stand in docs/flags.md. [harmless: no effect, none missed] [inert: the start ends, unless\n"
      "--allow-inert-flags is given] [refused: the start ends]\n",
      theirs ? "fastdeploy" : "tern");
  const std::string wanted = plain(topic);
  if (wanted == "listgroup") {
    out = "Groups:\n";
    for (const std::string_view title : titles(theirs)) out += fmt::format("  {}\n", title);
    return out;
  }
  bool any = false;
  for (const std::string_view title : titles(theirs)) {
    std::string entries;
    for (const app::FlagSpec& flag : app::flag_table()) {
      if (title_of(flag, theirs) != title) continue;
      const std::string_view others[] = {flag.name, title_of(flag, true), title_of(flag, false)};
      const bool match = std::any_of(std::begin(others), std::end(others), [&](std::string_view text) {
        return plain(text).find(wanted) != std::string::npos;
      });
      if (match) entries += flag_entry(flag);
    }
    if (entries.empty()) continue;
    any = true;
    out += fmt::format("\n{}:\n{}", title, entries);
  }
  if (!any) out += fmt::format("\nNo flag and no group contains \"{}\".\n", topic);
  return out;
}

std::string flags_markdown() {
  std::string out =
      "# Flags and environment variables\n\n"
      "Made from the tables in `src/app/flags` by `tern flags-markdown`; a test holds this page and the tables "
      "together.\n\n"
      "*acts*: does what it says. *harmless*: has no effect, and none is missed (a kernel that changes no answer, a "
      "transport between FastDeploy's processes, a detail of a feature whose own flag is inert); one line at the start "
      "names it. *inert*: promises what this build does not do; the start ends with a line that says so, and with "
      "`--allow-inert-flags` it goes on with a warning. Values that ask for nothing (the default, an empty one, "
      "`none`, `{}`) pass. *refused*: the start ends with the reason. `--dry-run` and `/config-info` show what every "
      "setting came to, and under `inert` what was let pass.\n\n"
      "In names `_` and `-` are the same; switches take `--x`, `--no-x` or a value; JSON values are objects. A flag on "
      "the command line wins over the file of `--config` (a flat YAML mapping of names to "
      "values), that over the default. Defaults that depend on other values are lowered or raised until they are "
      "valid; "
      "only what you give can be wrong, and then the start ends with one line and exit status 2. Other failures to "
      "start (folder, memory, port) end with exit status 1.\n";
  append_flags(out);
  out += "\n## Environment variables\n\nAn empty variable counts as unset.\n";
  append_variables(out);
  return out;
}

}  // namespace tern::cli
