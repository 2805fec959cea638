// Texts made from the tables.
#include "cli/help.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "app/flags/flags.h"

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
