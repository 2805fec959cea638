// kv_cache_quant_type: scales that a folder brings, what it refuses, and models over a quantized cache.
#include "model/quantized/cache_scales.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "model/run/sequence_runner.h"
#include "model/tests/support.h"

namespace tern::model {
namespace {

using testing::TempFolder;

constexpr CacheScaleShape kShape{2, 1, 2, 4, 127.0f};

std::string name_of(int layer, const char* which, const char* prefix = "ernie.layers.") {
  return fmt::format("{}{}.self_attn.cache{}_matmul.activation_scale", prefix, layer, which);
}

std::string entry(const std::string& name, const std::string& values) {
  return fmt::format("\"{}\": {}", name, values);
}

// All four lists, `more` behind them.
std::string file(const std::string& values, const std::string& more = "") {
  std::string text;
  for (int layer = 0; layer < 2; ++layer)
    for (const char* which : {"k", "v"})
      text += fmt::format("{}{}", text.empty() ? "{" : ",", entry(name_of(layer, which), values));
  return fmt::format("{}{}{}}}", text, more.empty() ? "" : ",", more);
}

std::string refusal(const std::string& text) {
  const auto scales = parse_cache_scales(text, kShape);
  return scales.ok() ? "" : scales.error().message;
}

TEST(CacheScales, ByHeadOrChannelFollowsFromTheirNumber) {
  const auto heads = parse_cache_scales(file("[0.5, 1]"), kShape);
  ASSERT_TRUE(heads.ok()) << heads.error().message;
  EXPECT_FALSE(heads->channels);
  ASSERT_EQ(heads->k.size(), 4u);
  // The file holds the largest magnitude over 448, whatever the type of codes.
  EXPECT_FLOAT_EQ(heads->k[0], 0.5f * 448 / 127);
  EXPECT_FLOAT_EQ(heads->v[3], 448.0f / 127);
  const auto channels = parse_cache_scales(file("[[1, 2, 3, 4], [5, 6, 7, 8]]"), kShape);
  ASSERT_TRUE(channels.ok()) << channels.error().message;
  EXPECT_TRUE(channels->channels);
  EXPECT_EQ(channels->v.size(), 16u);
  // Scales of a layer behind the decoder's are nobody's.
  EXPECT_EQ(refusal(file("[1, 1]", entry(name_of(2, "k"), "[1, 1]"))), "");
}

TEST(CacheScales, NamesWhatIsWrong) {
  const std::string more = entry(name_of(0, "k", "model.layers."), "[1, 1]");
  const std::pair<std::string, const char*> wrong[] = {
      {"[1]", "kv_cache_scale.json is not a JSON object"},
      {"{", "kv_cache_scale.json: "},
      {"{}", "layers.0.self_attn.cachek_matmul.activation_scale is missing"},
      {fmt::format("{{{}}}", entry(name_of(0, "k"), "[1, 1]")),
       "layers.1.self_attn.cachek_matmul.activation_scale is missing"},
      {file("[1, 1]", entry(name_of(0, "k"), "[1, 1]")), "a name is there twice"},
      {file("[1, 1]", more), "model.layers.0.self_attn.cachek_matmul.activation_scale is there twice"},
      {file("[1, 1, 1]"), "has 3 values, not 2 (one per head) or 8 (per channel)"},
      {file("[1, 0]"), "holds 0, which is no scale"},
      {file("[1, -2]"), "holds -2, which is no scale"},
      {file("[1, 1e39]"), "which is no scale"},
      {file("[1, \"x\"]"), "is not a list of numbers"},
      {file("[1, 1]", entry("zero", "[1]")), "zero is no scale of a layer of this model"},
      {file("[1, 1]", entry(name_of(3, "v"), "[1, 1]")), "is no scale of a layer of this model"}};
  for (const auto& [text, message] : wrong) EXPECT_NE(refusal(text).find(message), std::string::npos) << refusal(text);
}

json::Object config_of(const std::string& architecture) { return testing::small_config(architecture, 4, 2); }

Quantization cache_type(const char* type) {
  Quantization q;
  q.method = "kvcache", q.cache = type;
  return q;
}

LoadOptions options_in(const TempFolder& folder, const char* type) {
  LoadOptions o;
  o.path = folder.path();
  o.dummy = true;
  o.quantization = cache_type(type);
  return o;
}

TEST(CacheScales, AFolderBringsThemOnce) {
  TempFolder folder;
  const json::Object config = config_of("LlamaForCausalLM");
  testing::write_random_model(folder.path(), config);
  LoadOptions o = options_in(folder, "int8");
  o.dummy = false;
  auto model = load_model(o, testing::cpu());
  ASSERT_TRUE(model.ok()) << model.error().message;
  EXPECT_EQ((*model)->info().cache_format, "int8, a scale per token and head");
  EXPECT_EQ((*model)->kv_specs(64).front().dtype, DType::kI8);
  testing::TestTensors tensors = testing::read_tensors(folder.file("model.safetensors"));
  std::string json = "{";
  for (int layer = 0; layer < static_cast<int>(config.at("num_hidden_layers").as_int64()); ++layer) {
    for (const char* which : {"k", "v"}) {
      const std::string name = name_of(layer, which, "model.layers.");
      json += fmt::format("{},", entry(name, "[0.02, 0.03]"));
      const float values[2] = {4.0f, 5.0f};
      tensors[name] = {"F32", {2}, std::string(reinterpret_cast<const char*>(values), sizeof values)};
    }
  }
  json.back() = '}';
  testing::write_file(folder.file("kv_cache_scale.json"), json);
  model = load_model(o, testing::cpu());
  ASSERT_TRUE(model.ok()) << model.error().message;
  EXPECT_EQ((*model)->info().cache_format, "int8, scales per head from kv_cache_scale.json");
  testing::write_tensors(folder.file("model.safetensors"), tensors);
  model = load_model(o, testing::cpu());
  ASSERT_FALSE(model.ok());
  EXPECT_NE(model.error().message.find("scales of the cache are there twice"), std::string::npos);
  // Whoever computes them takes neither.
  o.quantization = cache_type("block_wise_fp8");
  EXPECT_TRUE(load_model(o, testing::cpu()).ok());
  o.quantization = {};
  EXPECT_TRUE(load_model(o, testing::cpu()).ok());
  std::filesystem::remove(folder.file("kv_cache_scale.json"));
  o.quantization = cache_type("float8_e4m3fn");
  model = load_model(o, testing::cpu());
  ASSERT_TRUE(model.ok()) << model.error().message;
  EXPECT_EQ((*model)->info().cache_format, "float8_e4m3fn, scales per head from the checkpoint");
}

TEST(CacheScales, LatentAttentionIsRefused) {
  TempFolder folder;
  testing::write_file(folder.file("config.json"), json::dump(config_of("DeepseekV3ForCausalLM")));
  const auto model = load_model(options_in(folder, "int8"), testing::cpu());
  ASSERT_FALSE(model.ok());
  EXPECT_EQ(model.error().message,
            "kv_cache_quant_type int8: the cache of latent attention (MLA) keeps the activation type; leave it out");
  EXPECT_FALSE(summarize_model(options_in(folder, "int8")).ok());
}

// Chunks, neighbours and another order of blocks change no bit; the cache is what makes logits differ from others.
TEST(CacheScales, LogitsDoNotDependOnHowAPromptIsCut) {
  TempFolder folder;
  testing::write_file(folder.file("config.json"), json::dump(config_of("Qwen3ForCausalLM")));
  const std::vector<int32_t> ids = testing::some_ids(150, 64);
  const auto last = [&](const Model& model, std::vector<size_t> cuts, uint64_t seed, bool neighbour) {
    auto run = SequenceRunner::make(
        model, testing::cpu(),
        {.block_size = 32, .max_tokens = 400, .max_rows = 2, .max_length = 200, .block_seed = seed});
    EXPECT_TRUE(run.ok());
    std::vector<float> logits;
    size_t at = 0;
    for (const size_t n : cuts) {
      std::vector<SequenceRunner::Row> rows{{0, std::span(ids).subspan(at, n)}};
      if (neighbour) rows.push_back({1, std::span(ids).subspan(0, 7)});
      const auto got = (*run)->step(rows);
      EXPECT_TRUE(got.ok());
      if (!got.ok()) return logits;
      logits.assign(got->begin(), got->begin() + model.info().vocab_size);
      at += n;
    }
    return logits;
  };
  for (const DType type : {DType::kF32, DType::kBF16}) {
    std::vector<float> plain;
    for (const char* cache : {"", "int8", "float8_e4m3fn", "block_wise_fp8"}) {
      LoadOptions o = options_in(folder, cache);
      o.activation = type;
      const auto model = load_model(o, testing::cpu());
      ASSERT_TRUE(model.ok()) << model.error().message;
      const auto whole = last(**model, {150}, 1, false);
      EXPECT_EQ(last(**model, {1, 63, 85, 1}, 7, false), whole) << cache;
      EXPECT_EQ(last(**model, {100, 49, 1}, 3, true), whole) << cache;
      if (plain.empty()) {
        plain = whole;
        continue;
      }
      double error = 0, size = 0;
      for (size_t i = 0; i < whole.size(); ++i)
        error += std::pow(whole[i] - plain[i], 2), size += std::pow(plain[i], 2);
      EXPECT_GT(error, 0.0) << cache;
      EXPECT_LT(std::sqrt(error / size), std::string(cache) == "int8" ? 0.05 : 0.12) << cache;
    }
  }
}

}  // namespace
}  // namespace tern::model
