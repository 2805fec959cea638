#include "cli/help.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "app/flags/environment.h"
#include "app/flags/flags.h"

namespace tern::cli {
namespace {

std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(), [](unsigned char c) { return std::tolower(c); });
  return result;
}

std::string_view type_word(app::ValueType type, std::string_view choices) {
  switch (type) {
    case app::ValueType::kInt:
      return "N";
    case app::ValueType::kFloat:
      return "X";
    case app::ValueType::kBool:
      return "";
    case app::ValueType::kEnum:
      return choices;
    case app::ValueType::kJson:
      return "JSON";
    case app::ValueType::kStringOrJson:
      return "TEXT|JSON";
    case app::ValueType::kList:
      return "A,B,...";
    case app::ValueType::kIntList:
      return "N,N,...";
    default:
      return "TEXT";
  }
}

std::string default_text(std::string_view fallback, std::string_view derived) {
  if (!derived.empty()) return std::string(derived);
  return fallback.empty() ? "none" : std::string(fallback);
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

struct Status {
  app::Support support = app::Support::kActs;
  std::string_view refused, reason;
};
Status status_of(const app::FlagSpec& flag) { return {flag.support, flag.refused, flag.reason}; }
Status status_of(const app::VariableSpec& variable) { return {variable.support, variable.refused, variable.reason}; }

// "acts", "inert: why", "harmless: why; refused: a|b". `mark` stands around values.
std::string status_text(const Status& status, std::string_view mark = "") {
  std::string out(app::support_name(status.support));
  if (!status.refused.empty()) out += fmt::format("; refused: {0}{1}{0}", mark, status.refused);
  if (!status.reason.empty()) out += fmt::format(": {}", status.reason);
  return out;
}

std::string flag_entry(const app::FlagSpec& flag) {
  constexpr size_t kIndent = 6;
  std::string head = fmt::format("  --{}", flag.name);
  if (flag.type == app::ValueType::kBool) head += fmt::format(", --no-{}", flag.name);
  if (const auto word = type_word(flag.type, flag.choices); !word.empty()) head += fmt::format(" {}", word);
  for (const std::string_view alias : app::split(flag.aliases, '|')) {
    head += fmt::format(", {}{}", alias.size() <= 2 ? "-" : "--", alias);
  }
  std::string body = fmt::format("{} Default: {}.", flag.meaning, default_text(flag.fallback, flag.derived));
  if (const std::string status = status_text(status_of(flag)); status != "acts") body += fmt::format(" [{}]", status);
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
                         escaped(status_text(status_of(flag), "`")));
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
      out += fmt::format("| `{}` | {} | {} | {} | {} |\n", variable.name,
                         typed ? value_cell(variable.type, variable.choices) : "any",
                         escaped(default_text(variable.fallback, "")), escaped(variable.meaning),
                         escaped(status_text(status_of(variable), "`")));
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
                       escaped(status_text(status_of(variable), "`")));
  }
  return out;
}

std::string command_help() {
  return R"(Usage: tern COMMAND [flags]
       tern --model DIR [flags]      the same as tern serve

Commands:
  serve       serves a model over the OpenAI protocol (also: api_server)
  multi-api-server  a server and a port for each engine of --data-parallel-size (also: multi_api_server)
  serve-paddlenlp  serves it as PaddleNLP's server does, which its environment sets up (docs/paddlenlp.md)
  start_server, stop_server, download_model  that server's commands
  chat        talks to a server; -q TEXT asks one question
  complete    has a server go on with texts; -q TEXT gives one
  run-batch   answers a file of requests, without a port
  ocr         reads the text of pictures, with the model that ships or at a server
  verify      runs reference cases through this build
  inspect     says what a model folder holds and needs
  export      writes a model with quantized weights into a new folder
  convert-static  writes a static export of PaddleNLP as safetensors into a new folder
  preprocess  pictures and videos as the server prepares them: grid, tokens, hash
  tokenize    text to token ids and back, line by line
  tokenizer   one text to ids or back, and what the vocabulary is
  render      chat messages to the prompt
  bench       decode, prefill and serving figures
  collect-env  says what a report of a fault should: machine, system, GPUs, variables
  completion  prints what bash, zsh or fish need to complete these commands and their flags
  version     prints the version

tern COMMAND --help says more. tern serve --help lists every flag; --help=WORD narrows the list.
)";
}

std::string flag_help(std::string_view topic) {
  std::string out =
      "Usage: tern serve --model DIR [flags]\n\n"
      "In names _ and - are the same. --config FILE reads flags from a YAML file; the command line wins. Variables "
      "and\n"
      "the whole table stand in docs/flags.md. [harmless: no effect, none missed] [inert: the start ends, unless\n"
      "--allow-inert-flags is given] [refused: the start ends]\n";
  const std::string wanted = lower(topic);
  if (wanted == "listgroup") {
    out = "Groups:\n";
    for (const app::FlagGroup group : app::kFlagGroups) out += fmt::format("  {}\n", app::group_title(group));
    return out;
  }
  bool any = false;
  for (const app::FlagGroup group : app::kFlagGroups) {
    const bool whole = wanted.empty() || lower(app::group_title(group)).find(wanted) != std::string::npos;
    std::string entries;
    for (const app::FlagSpec& flag : app::flag_table()) {
      if (flag.group != group) continue;
      const bool match =
          whole || app::with_underscores(flag.name).find(app::with_underscores(wanted)) != std::string::npos;
      if (match) entries += flag_entry(flag);
    }
    if (entries.empty()) continue;
    any = true;
    out += fmt::format("\n{}:\n{}", app::group_title(group), entries);
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
