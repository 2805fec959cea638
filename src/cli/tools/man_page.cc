#include "cli/tools/man_page.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>

#include "bench/bench.h"
#include "cli/commands.h"
#include "cli/tools/flag_words.h"

namespace tern::cli {
namespace {

// Text for roff: no escapes, no hyphens that are typeset, no line that is a request.
std::string roff(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool begins = out.empty() || out.back() == '\n';
    if (begins && (c == '.' || c == '\'')) out += "\\&";
    if (c == '\\')
      out += "\\e";
    else if (c == '-')
      out += "\\-";
    else
      out += c;
  }
  return out;
}

void add_entry(std::string& out, std::string_view head, std::string_view text) {
  out += fmt::format(".TP\n.B {}\n{}\n", roff(head), roff(text));
}

// What `run` prints for --help.
std::string help_of(int (*run)(const std::vector<std::string>& args)) {
  const int page = ::memfd_create("help", MFD_CLOEXEC), stdout_before = ::dup(STDOUT_FILENO);
  if (page < 0 || stdout_before < 0) return "";
  std::fflush(stdout);
  ::dup2(page, STDOUT_FILENO);
  run({"--help"});
  std::fflush(stdout);
  ::dup2(stdout_before, STDOUT_FILENO);
  ::close(stdout_before);
  std::string text(static_cast<size_t>(::lseek(page, 0, SEEK_END)), '\0');
  const ssize_t got = ::pread(page, text.data(), text.size(), 0);
  text.resize(got > 0 ? static_cast<size_t>(got) : 0);
  ::close(page);
  return text;
}

void add_help(std::string& out, const std::string& name, int (*run)(const std::vector<std::string>& args)) {
  out += fmt::format(".SS {}\n.EX\n{}.EE\n", roff(name), roff(help_of(run)));
}

void add_commands(std::string& out) {
  out += ".SH COMMANDS\n";
  for (const Command& command : commands()) {
    if (command.summary.empty()) continue;
    const std::string also = command.alias.empty() ? "" : fmt::format(", {}", command.alias);
    add_entry(out, std::string(command.name) + also, command.summary);
  }
}

void add_flags(std::string& out) {
  out += ".SH FLAGS OF TERN SERVE\nIn names _ and \\- are the same.\n";
  for (const app::FlagGroup group : app::kFlagGroups) {
    out += fmt::format(".SS {}\n", roff(app::group_title(group)));
    for (const app::FlagSpec& flag : app::flag_table()) {
      if (flag.group != group) continue;
      std::string head = flag_names(flag);
      if (const auto word = type_word(flag.type, flag.choices); !word.empty()) head += fmt::format(" {}", word);
      std::string text = fmt::format("{} Default: {}.", flag.meaning, default_text(flag.fallback, flag.derived));
      if (const std::string status = status_text(flag); status != "acts") text += fmt::format(" [{}]", status);
      add_entry(out, head, text);
    }
  }
}

void add_variables(std::string& out) {
  out += ".SH ENVIRONMENT\nAn empty variable counts as unset.\n";
  for (const app::VariableGroup group : app::kVariableGroups) {
    out += fmt::format(".SS {}\n", roff(app::group_title(group)));
    for (const app::VariableSpec& variable : app::variable_table()) {
      if (variable.group != group) continue;
      std::string text = fmt::format("{} Default: {}.", variable.meaning, default_text(variable.fallback, ""));
      if (const std::string status = status_text(variable); status != "acts") text += fmt::format(" [{}]", status);
      add_entry(out, variable.name, text);
    }
  }
}

void add_options(std::string& out) {
  out += ".SH OPTIONS OF THE OTHER COMMANDS\n";
  for (const Command& command : commands()) {
    const bool own = !command.summary.empty() && command.name != "serve" && command.name != "serve-paddlenlp" &&
                     command.name != "help" && command.name != "version";
    if (own) add_help(out, "tern " + std::string(command.name), command.run);
    if (command.name != "bench") continue;
    for (const bench::Benchmark& benchmark : bench::benchmarks())
      add_help(out, "tern bench " + std::string(benchmark.name), benchmark.run);
  }
}

}  // namespace

std::string man_page() {
  std::string out = fmt::format(
      ".TH TERN 1 \"\" \"tern {}\" \"User Commands\"\n.SH NAME\ntern \\- serves language and vision models\n"
      ".SH SYNOPSIS\n.B tern\n.I COMMAND\n[flags]\n.br\n.B tern \\-\\-model\n.I DIR\n[flags]\n"
      ".SH DESCRIPTION\nThe second form is the same as tern serve. Called as fastdeploy the program has FastDeploy's "
      "commands.\n",
      roff(TERN_VERSION));
  add_commands(out);
  add_flags(out);
  add_variables(out);
  add_options(out);
  out +=
      ".SH EXIT STATUS\n.TP\n.B 0\nDone.\n.TP\n.B 1\nIt could not be done: a folder, memory, a port, a server that "
      "does "
      "not answer.\n.TP\n.B 2\nWhat was asked is wrong.\n";
  return out;
}

}  // namespace tern::cli
