#include "app/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "app/report.h"

namespace tern::app {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// A command with an option of every kind.
struct Command {
  std::vector<std::string> files;
  std::string name = "default", type = "a", left, right;
  int count = 3;
  uint64_t seed = 1;
  double ratio = 0, rate = 0;
  bool json = false, eos = true;

  std::optional<int> parse(const std::vector<std::string>& args) {
    Options options("Does a thing", "tern thing");
    options.add_option("files", files, "Its files").required();
    options.add_option("--name,-n", name, "Its name").capture_default_str();
    options.add_option("--type", type, "Its type").one_of({"a", "b"});
    options.add_option("--count", count, "Its count").range(1, 10);
    options.add_option("--seed", seed, "Its seed").range(uint64_t{1}, uint64_t{1} << 40);
    options.add_option("--ratio", ratio, "Its ratio").range(0.0, 1.0);
    options.add_option("--rate", rate, "Its rate").non_negative();
    const Option first = options.add_option("--left", left, "One way");
    options.add_option("--right", right, "The other way").excludes(first);
    options.add_flag("--json", json, "As JSON");
    options.add_flag("!--no-eos", eos, "Without an end");
    return parse_options(options, args);
  }
};

TEST(Options, WriteTheirVariables) {
  Command c;
  const auto status = c.parse({"x", "-n", "me", "y", "--type=b", "--count", "10", "--seed", "1099511627776", "--ratio",
                               "0.5", "--rate", "0", "--json", "--no-eos"});
  EXPECT_EQ(status, std::nullopt);
  EXPECT_THAT(c.files, ElementsAre("x", "y"));
  EXPECT_EQ(c.name, "me");
  EXPECT_EQ(c.type, "b");
  EXPECT_EQ(c.count, 10);
  EXPECT_EQ(c.seed, uint64_t{1} << 40);
  EXPECT_EQ(c.ratio, 0.5);
  EXPECT_TRUE(c.json);
  EXPECT_FALSE(c.eos);
}

TEST(Options, LeaveWhatIsNotGiven) {
  Command c;
  EXPECT_EQ(c.parse({"x"}), std::nullopt);
  EXPECT_EQ(c.name, "default");
  EXPECT_EQ(c.count, 3);
  EXPECT_TRUE(c.eos);
}

TEST(Options, HelpShowsEachWithItsDefault) {
  testing::internal::CaptureStdout();
  EXPECT_EQ(Command().parse({"--help"}), 0);
  const std::string help = testing::internal::GetCapturedStdout();
  EXPECT_THAT(help, HasSubstr("tern thing"));
  EXPECT_THAT(help, HasSubstr("-n,--name TEXT=default"));
  EXPECT_THAT(help, HasSubstr("INT in [1 - 10]"));
}

TEST(Options, AMistakeIsOneLineThatNamesTheOption) {
  const std::pair<std::vector<std::string>, std::string> cases[] = {
      {{}, "files is required"},
      {{"x", "--what"}, "--what"},
      {{"x", "--count", "0"}, "--count: Value 0 not in range 1 to 10"},
      {{"x", "--count", "two"}, "--count: "},
      {{"x", "--seed", "0"}, "--seed: Value 0 not in range"},
      {{"x", "--ratio", "1.5"}, "--ratio: Value 1.5 not in range"},
      {{"x", "--rate", "-1"}, "--rate: -1 is less than 0 ("},
      {{"x", "--rate", "fast"}, "--rate: fast is no number ("},
      {{"x", "--type", "c"}, "--type: c not in {a,b}"},
      {{"x", "--left", "1", "--right", "2"}, "excludes"},
  };
  for (const auto& [args, words] : cases) {
    testing::internal::CaptureStderr();
    EXPECT_EQ(Command().parse(args), kUsageExit);
    const std::string line = testing::internal::GetCapturedStderr();
    EXPECT_THAT(line, HasSubstr(words));
    EXPECT_THAT(line, testing::EndsWith("(--help lists the options)\n"));
    EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1) << line;
  }
}

}  // namespace
}  // namespace tern::app
