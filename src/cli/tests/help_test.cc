// Texts made from the tables.
#include "cli/help.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "app/flags/environment.h"
#include "app/flags/flags.h"
#include "bench/bench.h"
#include "cli/commands.h"
#include "cli/tools/man_page.h"

namespace tern::cli {
namespace {

TEST(Help, IsGroupedAndSaysEveryDefault) {
  const std::string help = flag_help("");
  for (const app::FlagSpec& flag : app::flag_table())
    EXPECT_NE(help.find(fmt::format("  --{}", flag.name)), std::string::npos) << flag.name;
  size_t defaults = 0;
  for (size_t at = help.find("Default:"); at != std::string::npos; at = help.find("Default:", at + 1)) ++defaults;
  EXPECT_GE(defaults, app::flag_table().size());
  for (const app::FlagGroup group : app::kFlagGroups)
    EXPECT_NE(help.find(fmt::format("\n{}:\n", app::group_title(group))), std::string::npos);
  EXPECT_NE(flag_help("prefix").find("--enable-prefix-caching"), std::string::npos);
  EXPECT_EQ(flag_help("prefix").find("--scheduler-ttl"), std::string::npos);
  EXPECT_NE(flag_help("listgroup").find("Scheduler"), std::string::npos);
}

std::string roff(std::string text) {
  for (size_t at = 0; (at = text.find('-', at)) != std::string::npos; at += 2) text.replace(at, 1, "\\-");
  return text;
}

TEST(Help, ThePagesHaveEveryCommandFlagAndVariable) {
  const std::string help = command_help(), man = man_page(), flags = flags_markdown();
  for (const Command& command : commands()) {
    const bool shown = !command.summary.empty();
    EXPECT_EQ(help.find(fmt::format("\n  {} ", command.name)) != std::string::npos, shown) << command.name;
    EXPECT_EQ(man.find(fmt::format("\n.B {}", roff(std::string(command.name)))) != std::string::npos, shown)
        << command.name;
  }
  for (const bench::Benchmark& benchmark : bench::benchmarks())
    EXPECT_NE(man.find(fmt::format(".SS tern bench {}\n", benchmark.name)), std::string::npos) << benchmark.name;
  for (const app::FlagSpec& flag : app::flag_table()) {
    EXPECT_NE(man.find("\n.B " + roff(fmt::format("--{}", flag.name))), std::string::npos) << flag.name;
    EXPECT_NE(flags.find(fmt::format("`--{}`", flag.name)), std::string::npos) << flag.name;
  }
  for (const app::VariableSpec& variable : app::variable_table())
    EXPECT_NE(man.find("\n.B " + roff(std::string(variable.name))), std::string::npos) << variable.name;
}

TEST(Help, TheManPageIsRoff) {
  std::istringstream lines(man_page());
  for (std::string line; std::getline(lines, line);) {
    for (size_t at = 0; (at = line.find('\\', at)) != std::string::npos; at += 2)
      EXPECT_NE(std::string("-&e").find(line[at + 1]), std::string::npos) << line;
    if (!line.starts_with('.')) continue;
    const std::string request = line.substr(1, line.find(' ') == std::string::npos ? line.size() : line.find(' ') - 1);
    EXPECT_NE(std::string(" TH SH SS TP B I br EX EE ").find(" " + request + " "), std::string::npos) << line;
  }
}

TEST(Help, GroupsHaveFastDeploysNamesToo) {
  EXPECT_NE(flag_help("Parallel Configuration").find("--tensor-parallel-size"), std::string::npos);
  EXPECT_EQ(flag_help("Parallel Configuration").find("\n  --block-size"), std::string::npos);
  EXPECT_NE(flag_help("performance-tuning").find("--enable-prefix-caching"), std::string::npos);
}

TEST(Help, FlagsPageIsInStepWithTheTables) {
  std::ifstream file(std::string(TERN_SOURCE_DIR) + "/docs/flags.md");
  std::stringstream page;
  page << file.rdbuf();
  EXPECT_EQ(page.str(), flags_markdown()) << "run: tern flags-markdown > docs/flags.md";
  std::ifstream other(std::string(TERN_SOURCE_DIR) + "/docs/paddlenlp.md");
  std::ostringstream text;
  text << other.rdbuf();
  EXPECT_NE(text.str().find(paddlenlp_markdown()), std::string::npos)
      << "its table is what tern flags-markdown paddlenlp prints";
}

}  // namespace
}  // namespace tern::cli
