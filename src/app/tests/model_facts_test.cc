#include "app/config/model_facts.h"
#include "app/hub/find_folder.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "app/flags/environment.h"
#include "json/json.h"

namespace tern::app {
namespace {

TEST(ModelFacts, HostileValuesAreErrors) {
  for (const char* text : {R"({"temperature":-1})", R"({"top_p":2})", R"({"top_k":-5})", R"({"eos_token_id":"x"})",
                           R"({"eos_token_id":99999999999})", R"({"temperature":"hot"})"}) {
    ModelFacts facts;
    EXPECT_FALSE(read_generation_json(json::parse(text)->as_object(), facts).ok()) << text;
  }
  for (const char* text : {R"({"architectures":[]})", R"({"architectures":"X"})", R"({"max_position_embeddings":-1})",
                           R"({"vocab_size":1e30})"}) {
    ModelFacts facts;
    EXPECT_FALSE(read_config_json(json::parse(text)->as_object(), facts).ok()) << text;
  }
}

TEST(ModelFacts, FoldersAreFoundAsHubNamesToo) {
  const std::string root = testing::TempDir() + "/tern_hub";
  std::filesystem::create_directories(root + "/PaddlePaddle/Tiny");
  std::ofstream(root + "/PaddlePaddle/Tiny/config.json") << "{}";
  const auto environment = Environment::from({{"FD_MODEL_CACHE", root}});
  ASSERT_TRUE(environment.ok());
  EXPECT_EQ(find_folder("baidu/Tiny", *environment), root + "/PaddlePaddle/Tiny");
  EXPECT_EQ(find_folder("PaddlePaddle/Tiny", *environment), root + "/PaddlePaddle/Tiny");
  EXPECT_EQ(find_folder("baidu/Other", *environment), "");
  EXPECT_EQ(find_folder(root, *environment), root);
  EXPECT_EQ(find_folder("/nowhere/Tiny", *environment), "");
  const auto missing = read_model_facts(root, "config.json", {});
  ASSERT_FALSE(missing.ok());
  EXPECT_NE(missing.error().message.find("has no config.json"), std::string::npos);
  std::filesystem::remove_all(root);
}

}  // namespace
}  // namespace tern::app
