// Scripts of src/sched/tests/scripts: what goes in, which plans come out. TERN_UPDATE_SCRIPTS=1 writes the plans into
// them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "sched/tests/script.h"

namespace tern::sched::testing {
namespace {

std::vector<std::string> script_names() {
  std::vector<std::string> names;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(TERN_SOURCE_DIR) + "/src/sched/tests/scripts")) {
    if (entry.path().extension() == ".txt") names.push_back(entry.path().stem());
  }
  std::sort(names.begin(), names.end());
  return names;
}

class Script : public ::testing::TestWithParam<std::string> {};

TEST_P(Script, GivesTheExpectedPlans) {
  const std::string path = std::string(TERN_SOURCE_DIR) + "/src/sched/tests/scripts/" + GetParam() + ".txt";
  std::ifstream in(path);
  std::ostringstream text;
  text << in.rdbuf();
  std::string result;
  try {
    result = run_script(text.str());
  } catch (const Failure& failure) {
    FAIL() << failure.what();
  }
  EXPECT_NE(text.str().find("\n= "), std::string::npos) << "the script expects nothing";
  EXPECT_EQ(result, text.str());
  if (std::getenv("TERN_UPDATE_SCRIPTS")) std::ofstream(path) << result;
}

INSTANTIATE_TEST_SUITE_P(All, Script, ::testing::ValuesIn(script_names()),
                         [](const auto& script) { return script.param; });

// TERN_SCRIPT names a file to run: the printed script of a failing random run, say.
TEST(ScriptFile, Runs) {
  const char* path = std::getenv("TERN_SCRIPT");
  if (!path) GTEST_SKIP() << "TERN_SCRIPT is not set";
  std::ifstream in(path);
  std::ostringstream text;
  text << in.rdbuf();
  try {
    printf("%s", run_script(text.str()).c_str());
  } catch (const Failure& failure) {
    FAIL() << failure.what();
  }
}

// A recorded run, printed and read again, does the same.
TEST(ScriptLanguage, PrintsWhatItReads) {
  const std::string text =
      "config v1=1 block_size=4 blocks=20 seqs=2 budget=16 len=64\n"
      "add 1 prompt=1,2,3,3,3 new=4 score key=0-3:9 whole=1-3\n"
      "add 2 prompt=8,9 new=2 nocache\n"
      "plan\ncollect 1=2 2!\nabort 1\n";
  const std::string printed = run_script(text);
  EXPECT_EQ(printed.find("\n= "), printed.rfind("\n= "));
  Command add;
  add.kind = Command::kAdd;
  add.sequence.id = 1;
  add.sequence.prompt = {1, 2, 3};
  add.sequence.max_new_tokens = 4;
  add.sequence.prompt_logit_rows = 1;
  add.sequence.extra_keys = {{0, 3, {9, 0}}};
  add.sequence.unsplittable = {{1, 3}};
  EXPECT_EQ(command_text(add), "add 1 prompt=1,2,3 new=4 score key=0-3:9 whole=1-3");
  Command collect;
  collect.kind = Command::kCollect;
  collect.outcomes = {{1, 2, false}, {2, 1, true}, {3, 0, true}};
  EXPECT_EQ(command_text(collect), "collect 1=2 2! 3=0!");
  EXPECT_THROW(run_script("plan\n"), Failure);
  EXPECT_THROW(run_script("config nonsense=1\n"), Failure);
}

}  // namespace
}  // namespace tern::sched::testing
