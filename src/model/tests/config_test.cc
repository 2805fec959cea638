// A config is hostile input.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>

#include "model/arch/registry.h"
#include "model/tests/support.h"

namespace tern::model {
namespace {

using testing::TempFolder;
using testing::write_file;

json::Object parse(const std::string& text) { return json::parse(text).value().get_object(); }

json::Object llama(const std::string& more = "{}") {
  json::Object o =
      parse(R"({"architectures":["LlamaForCausalLM"],"vocab_size":96,"hidden_size":64,"intermediate_size":96,
      "num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2})");
  merge_json(o, parse(more));
  return o;
}

std::string error_of(const json::Object& config) {
  const auto spec = read_spec(config);
  return spec.ok() ? "" : spec.error().message;
}

TEST(Config, ReadsEveryArchitecture) {
  for (const auto& [name, config] : testing::small_configs(4, 2)) {
    const auto spec = read_spec(config);
    ASSERT_TRUE(spec.ok()) << name << ": " << spec.error().message;
    EXPECT_EQ(spec->architecture, name);
    EXPECT_EQ(spec->layers, 2);
    EXPECT_EQ(spec->vocab_size, 96);
  }
}

TEST(Config, EveryArchitectureHasASmallConfig) {
  std::set<ReadSpec> tried;  // a name of the same function is the same architecture
  for (const auto& [name, config] : testing::small_configs(4, 2)) {
    for (const Architecture& a : architectures()) {
      if (a.name == name) tried.insert(a.read);
    }
  }
  for (const Architecture& a : architectures()) EXPECT_TRUE(tried.contains(a.read)) << a.name;
}

TEST(Config, UnknownArchitectureNamesTheKnownOnes) {
  const std::string e = error_of(llama(R"({"architectures":["BertModel"]})"));
  EXPECT_NE(e.find("BertModel"), std::string::npos);
  for (const Architecture& a : architectures()) EXPECT_NE(e.find(a.name), std::string::npos) << a.name;
  for (const char* bad : {R"({"architectures":null})", R"({"architectures":[]})",
                          R"({"architectures":"LlamaForCausalLM"})", R"({"architectures":[7]})"})
    EXPECT_NE(error_of(llama(bad)).find("architectures"), std::string::npos) << bad;
}

TEST(Config, HostileNumbersAreErrorsThatNameTheKey) {
  const char* keys[] = {"vocab_size",          "hidden_size",         "intermediate_size", "num_hidden_layers",
                        "num_attention_heads", "num_key_value_heads", "head_dim",          "max_position_embeddings"};
  for (const char* key : keys)
    for (const char* value : {"0", "-1", "1099511627776", "9223372036854775807", "18446744073709551615", "1e300", "1.5",
                              "\"4\"", "[1]", "true"}) {
      const std::string e = error_of(llama(fmt::format("{{\"{}\":{}}}", key, value)));
      EXPECT_NE(e.find(key), std::string::npos) << key << " " << value << ": " << e;
    }
  for (const char* key :
       {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"}) {
    json::Object o = llama();
    o.erase(key);
    EXPECT_NE(error_of(o).find(fmt::format("{} is missing", key)), std::string::npos) << key;
  }
}

TEST(Config, ImpossibleShapesAreErrors) {
  EXPECT_NE(error_of(llama(R"({"num_key_value_heads":3})")).find("cannot share"), std::string::npos);
  EXPECT_NE(error_of(llama(R"({"num_attention_heads":5,"num_key_value_heads":5})")).find("not a multiple"),
            std::string::npos);
  EXPECT_NE(error_of(llama(R"({"head_dim":12})")).find("multiple of 8"), std::string::npos);
  EXPECT_NE(error_of(llama(R"({"rms_norm_eps":-1})")).find("rms_norm_eps"), std::string::npos);
  EXPECT_NE(error_of(llama(R"({"hidden_act":"gelu"})")).find("gelu"), std::string::npos);
  EXPECT_NE(error_of(llama(R"({"dtype":"float8"})")).find("float8"), std::string::npos);
  const auto moe = [](const char* more) {
    json::Object o = llama(
        R"({"architectures":["Qwen3MoeForCausalLM"],"num_experts":4,"num_experts_per_tok":2,"moe_intermediate_size":8})");
    merge_json(o, parse(more));
    return error_of(o);
  };
  EXPECT_EQ(moe("{}"), "");
  EXPECT_NE(moe(R"({"num_experts_per_tok":5})").find("exceed the 4"), std::string::npos);
  EXPECT_NE(moe(R"({"num_experts":0})").find("num_experts"), std::string::npos);
  EXPECT_NE(moe(R"({"mlp_only_layers":"all"})").find("mlp_only_layers"), std::string::npos);
  json::Object deepseek = testing::small_config("DeepseekV3ForCausalLM", 4, 2);
  ASSERT_EQ(error_of(deepseek), "");
  deepseek["n_group"] = 3;
  EXPECT_NE(error_of(deepseek).find("do not form 3 groups"), std::string::npos);
}

TEST(Config, SeveralMistakesAreNamedTogether) {
  const std::string e = error_of(llama(R"({"vocab_size":0,"hidden_act":"gelu","rope_theta":"x"})"));
  for (const char* key : {"vocab_size", "gelu", "rope_theta"}) EXPECT_NE(e.find(key), std::string::npos) << e;
}

TEST(Config, SlidingWindowsAreRefusedOnlyWhenTheyMatter) {
  const auto qwen = [](const char* more) {
    json::Object o = llama(R"({"architectures":["Qwen2ForCausalLM"],"max_position_embeddings":4096})");
    merge_json(o, parse(more));
    return error_of(o);
  };
  EXPECT_EQ(qwen(R"({"use_sliding_window":false,"sliding_window":128})"), "");
  EXPECT_EQ(qwen(R"({"use_sliding_window":true,"sliding_window":4096})"), "");
  EXPECT_NE(qwen(R"({"use_sliding_window":true,"sliding_window":128})").find("sliding_window"), std::string::npos);
}

TEST(Config, OverridesAreMerged) {
  TempFolder folder;
  write_file(folder.file("config.json"), R"({"a":1,"rope":{"x":1,"y":2},"gone":3})");
  const auto merged = read_config(folder.path(), "config.json", parse(R"({"a":7,"rope":{"y":5},"gone":null})"));
  ASSERT_TRUE(merged.ok());
  EXPECT_EQ(json::dump(*merged), R"({"a":7,"rope":{"x":1,"y":5}})");
  EXPECT_EQ(read_config(folder.file("no"), "config.json", {}).error().code, ErrorCode::kNotFound);
  write_file(folder.file("config.json"), "[1]");
  EXPECT_EQ(read_config(folder.path(), "config.json", {}).error().code, ErrorCode::kCorrupt);
  write_file(folder.file("config.json"), "{");
  EXPECT_EQ(read_config(folder.path(), "config.json", {}).error().code, ErrorCode::kCorrupt);
}

TEST(Config, EosMayBeOneIdOrAList) {
  EXPECT_EQ(read_spec(llama(R"({"eos_token_id":2})"))->eos_token_ids, std::vector<int32_t>{2});
  EXPECT_EQ(read_spec(llama(R"({"eos_token_id":[2,9]})"))->eos_token_ids, (std::vector<int32_t>{2, 9}));
  EXPECT_TRUE(read_spec(llama(R"({"eos_token_id":null})"))->eos_token_ids.empty());
  EXPECT_NE(error_of(llama(R"({"eos_token_id":[-4]})")).find("eos_token_id"), std::string::npos);
  EXPECT_NE(error_of(llama(R"({"eos_token_id":4294967296})")).find("eos_token_id"), std::string::npos);
}

TEST(Summary, SaysWhatAModelTakesFromItsConfigAlone) {
  // ERNIE-4.5-0.3B as published (models-ernie-paddleocr.md 1.1).
  TempFolder folder;
  write_file(
      folder.file("config.json"),
      R"({"architectures":["Ernie4_5_ForCausalLM"],"vocab_size":103424,"hidden_size":1024,"intermediate_size":3072,
      "num_hidden_layers":18,"num_attention_heads":16,"num_key_value_heads":2,"head_dim":128,"tie_word_embeddings":true,"max_position_embeddings":131072})");
  LoadOptions options;
  options.path = folder.path();
  const auto s = summarize_model(options);
  ASSERT_TRUE(s.ok()) << s.error().message;
  const int64_t layer = 2 * 1024 * 2048 + 2 * 256 * 1024 + 3 * 3072 * 1024 + 2 * 1024;
  EXPECT_EQ(s->parameters, 103424LL * 1024 + 18 * layer + 1024);
  EXPECT_EQ(s->active_parameters, s->parameters);
  EXPECT_EQ(s->kv_bytes_per_token, 18u * 2 * 2 * 128 * 2);
  ASSERT_EQ(s->weight_bytes.size(), 2u);
  EXPECT_NEAR(static_cast<double>(s->weight_bytes[0].second) / (2.0 * static_cast<double>(s->parameters)), 1.0, 0.01);
  options.overrides = parse(
      R"({"num_hidden_layers":1000,"intermediate_size":1048576,"hidden_size":1048576,"vocab_size":16777216,"head_dim":1024})");
  const auto huge = summarize_model(options);
  ASSERT_FALSE(huge.ok());
  EXPECT_EQ(huge.error().code, ErrorCode::kTooLarge);
}

TEST(Summary, DeepseekCachesOneRowPerToken) {
  TempFolder folder;
  json::Object config = testing::small_config("DeepseekV3ForCausalLM", 4, 2);
  write_file(folder.file("config.json"), json::dump(config));
  LoadOptions options;
  options.path = folder.path();
  const auto s = summarize_model(options);
  ASSERT_TRUE(s.ok());
  EXPECT_EQ(s->kv_bytes_per_token, 2u * (32 + 8) * 2);
  EXPECT_LT(s->active_parameters, s->parameters);
}

TEST(Summary, TooManyTensorsAreRefusedBeforeTheyAreListed) {
  TempFolder folder;
  json::Object config = testing::small_config("Qwen3MoeForCausalLM", 4, 2);
  config["num_experts"] = 4096;
  config["num_hidden_layers"] = 1000;
  write_file(folder.file("config.json"), json::dump(config));
  LoadOptions options;
  options.path = folder.path();
  const auto s = summarize_model(options);
  ASSERT_FALSE(s.ok());
  EXPECT_EQ(s.error().code, ErrorCode::kTooLarge);
}

}  // namespace
}  // namespace tern::model
