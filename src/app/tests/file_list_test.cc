#include "app/download/file_list.h"

#include <gtest/gtest.h>

namespace tern::app {
namespace {

const std::string kSum(32, 'a');

TEST(FileList, ReadsPathsAndSums) {
  const auto files =
      parse_file_list("config.json:" + kSum + "\n\n  rank_0/a:b.pdiparams:" + std::string(32, 'F') + "\r\n");
  ASSERT_TRUE(files.ok()) << files.error().message;
  ASSERT_EQ(files->size(), 2u);
  EXPECT_EQ((*files)[1].path, "rank_0/a:b.pdiparams");
  EXPECT_EQ((*files)[1].md5, std::string(32, 'f'));
}

TEST(FileList, RefusesWhatIsNotBelowTheFolder) {
  for (const char* path : {"", "/etc/passwd", "..", "../x", "a/../x", "./x", "a//b", "a/", "a\\b", "a\x01"}) {
    EXPECT_FALSE(parse_file_list(std::string(path) + ":" + kSum).ok()) << path;
  }
  EXPECT_FALSE(parse_file_list("x").ok());
  EXPECT_FALSE(parse_file_list("x:123").ok());
  EXPECT_FALSE(parse_file_list("").ok());
  EXPECT_FALSE(parse_file_list("x:" + kSum + "\nx:" + kSum).ok());
}

TEST(FileList, KnowsTheFamilies) {
  for (const char* name :
       {"Qwen/QwQ", "a/Qwen2", "deepseek-ai/DeepSeek-R1/weight_only_int4", "meta-llama/Meta-Llama-3/x"}) {
    EXPECT_TRUE(check_model_name(name).ok()) << name;
  }
  for (const char* name : {"gpt2", "Llama", "Llama-2", "x/Llama", "../Qwen", "/Qwen", ""}) {
    EXPECT_FALSE(check_model_name(name).ok()) << name;
  }
}

}  // namespace
}  // namespace tern::app
