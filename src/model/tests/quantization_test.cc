// --quantization as values, what it leaves alone, what it refuses, and models whose weights it makes.
#include "model/quantization.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "model/tests/support.h"
#include "model/verify/golden_case.h"
#include "model/verify/verify_case.h"

namespace tern::model {
namespace {

using testing::TempFolder;

Quantization read(const std::string& text, const std::string& architecture = "LlamaForCausalLM") {
  const json::Value asked = text.starts_with("{") ? *json::parse(text) : json::Value(text);
  const auto q = read_quantization(asked, architecture);
  EXPECT_TRUE(q.ok()) << (q.ok() ? "" : q.error().message);
  return q.ok() ? *q : Quantization{};
}

std::string parts(const Quantization& q) { return q.dense + " " + q.experts + " " + q.picture_experts + " " + q.head; }

std::string refusal(const std::string& text) {
  const auto q = read_quantization(text.starts_with("{") ? *json::parse(text) : json::Value(text), "");
  return q.ok() ? "" : q.error().message;
}

TEST(Quantization, EveryMethodBecomesFormatsOfParts) {
  EXPECT_EQ(parts(read("wint8")), "wint8 wint8 wint8 ");
  EXPECT_EQ(parts(read("wint4")), "wint4 wint4 wint4 ");
  EXPECT_EQ(parts(read("block_wise_fp8")), "block_wise_fp8 block_wise_fp8 block_wise_fp8 ");
  EXPECT_EQ(parts(read("weight_only")), "wint8 wint8 wint8 ");
  EXPECT_EQ(parts(read(R"({"quantization":"weight_only","algo":"weight_only_int4"})")), "wint4 wint4 wint4 ");
  EXPECT_EQ(parts(read(R"({"quantization":"wint4","group_size":64})")), "wint4-64 wint4-64 wint4-64 ");
  EXPECT_EQ(parts(read(R"({"quantization":"wint4","group_size":-1})")), "wint4 wint4 wint4 ");
  EXPECT_EQ(parts(read(R"({"quantization":"wint8","lm_head_quant_type":"wint8"})")), "wint8 wint8 wint8 wint8");
  EXPECT_EQ(parts(read(R"({"quantization":"mix_quant","dense_quant_type":"wint8","moe_quant_type":"wint4"})")),
            "wint8 wint4 wint4 ");
  EXPECT_EQ(parts(read(R"({"quantization":"mix_quant","moe_quant_type":"wint4","image_moe_quant_type":"wint8"})")),
            " wint4 wint8 ");
  for (const char* nothing : {"", "none", "None", R"({"quantization":"none"})"}) EXPECT_FALSE(read(nothing).any());
}

TEST(Quantization, TheCacheHasATypeOfItsOwn) {
  for (const char* type : {"int8", "float8_e4m3fn", "block_wise_fp8"}) {
    const std::string key = std::string(R"(,"kv_cache_quant_type":")") + type + "\"}";
    for (const char* method : {"kvcache", "none", "mix_quant"}) {
      const Quantization q = read(std::string(R"({"quantization":")") + method + "\"" + key);
      EXPECT_EQ(q.cache, type) << method;
      EXPECT_FALSE(q.any()) << method;
    }
    const Quantization both = read(R"({"quantization":"wint8","is_channel_wise":true)" + key);
    EXPECT_EQ(both.cache, type);
    EXPECT_EQ(parts(both), "wint8 wint8 wint8 ");
  }
  EXPECT_EQ(read(R"({"quantization":"wint8","kv_cache_quant_type":"none"})").cache, "");
}

TEST(Quantization, ErnieKeepsDensePartsInEightBits) {
  for (const char* name :
       {"Ernie4_5_MoeForCausalLM", "Ernie4_5_VLMoeForConditionalGeneration", "Ernie4_5_ForCausalLM"}) {
    EXPECT_EQ(parts(read("wint4", name)), "wint8 wint4 wint4 ") << name;
    EXPECT_EQ(parts(read(R"({"quantization":"wint4","group_size":128})", name)), "wint8 wint4-128 wint4-128 ");
    EXPECT_EQ(parts(read(R"({"quantization":"mix_quant","dense_quant_type":"wint4"})", name)), "wint4   ");
  }
  EXPECT_EQ(parts(read("wint4", "PaddleOCRVLForConditionalGeneration")), "wint4 wint4 wint4 ");
}

TEST(Quantization, WhatIsNotBuiltIsRefusedInALine) {
  for (const char* method : {"wint2", "w4a8", "w4afp8", "tensor_wise_fp8", "wfp8afp8", "modelopt_fp4", "mxfp4"})
    EXPECT_EQ(refusal(method), std::string("\"") + method +
                                   "\" is not built; wint8, wint4, block_wise_fp8, weight_only, mix_quant and kvcache "
                                   "work");
  const std::pair<const char*, const char*> wrong[] = {
      {R"({"group_size":64})", "needs the key \"quantization\""},
      {R"({"quantization":8})", "quantization"},
      {R"({"quantization":"wint4","group_size":48})", "group_size 48 is none of 32, 64 and 128"},
      {R"({"quantization":"wint8","group_size":64})", "group_size goes with wint4 only"},
      {R"({"quantization":"wint8","bits":8})", "has no key \"bits\""},
      {R"({"quantization":"wint8","lm_head_quant_type":"wint4"})", "lm_head_quant_type wint4 is not built"},
      {R"({"quantization":"wint8","kv_cache_quant_type":"int8_zp"})",
       "kv_cache_quant_type int8_zp is not built; int8, float8_e4m3fn and block_wise_fp8 are"},
      {R"({"quantization":"wint8","kv_cache_quant_type":8})", "kv_cache_quant_type"},
      {R"({"quantization":"wint8","has_zero_point":true})", "a cache with zero points is not built"},
      {"kvcache", "kvcache needs kv_cache_quant_type"},
      {R"({"quantization":"kvcache","kv_cache_quant_type":"int8","ignore":["x"]})", "ignore does not go with kvcache"},
      {R"({"quantization":"wint8","is_quantized":true})", "is_quantized is about the files of a checkpoint"},
      {R"({"quantization":"wint8","moe_quant_type":"wint4"})", "moe_quant_type goes with mix_quant only"},
      {R"({"quantization":"mix_quant"})", "mix_quant needs"},
      {R"({"quantization":"mix_quant","dense_quant_type":"w4a8"})", "weights of type w4a8 are not built"},
      {R"({"quantization":"weight_only","algo":"int3"})", "algo int3 is neither"},
      {R"({"quantization":"block_wise_fp8","weight_block_size":[64,64]})", "weight_block_size must be [128, 128]"},
      {R"({"quantization":"wint8","":1})", "has no key \"\""},
      {R"({"quantization":"block_wise_fp8","scale_fmt":"float32"})", "scale_fmt float32 is not built; ue8m0 is"},
      {R"({"quantization":"wint8","scale_fmt":"ue8m0"})", "scale_fmt goes with block_wise_fp8 only"},
      {R"({"quantization":"wint8","ignore":"lm_head"})", "ignore must be a list of names"}};
  for (const auto& [text, message] : wrong) EXPECT_NE(refusal(text).find(message), std::string::npos) << refusal(text);
}

LoadOptions dummy(const TempFolder& folder, const std::string& architecture, const std::string& quantization) {
  const json::Object config = testing::small_config(architecture, 4, 2);
  testing::write_file(folder.file("config.json"), json::dump(config));
  LoadOptions o;
  o.path = folder.path();
  o.dummy = true;
  o.quantization = read(quantization, architecture);
  return o;
}

TEST(Quantization, SaysWhatEachPartBecameAndCountsItsBytes) {
  TempFolder folder;
  const LoadOptions o = dummy(folder, "Ernie4_5_MoeForCausalLM", "wint4");
  const auto model = load_model(o, testing::cpu());
  ASSERT_TRUE(model.ok()) << model.error().message;
  const std::string& line = (*model)->info().formats;
  for (const char* part : {"projections in wint8", "shared experts in wint8", " experts in wint4",
                           "1 output layer in bf16", "routers in f32", "embeddings, norms and activations in bfloat16"})
    EXPECT_NE(line.find(part), std::string::npos) << line;
  const auto summary = summarize_model(o);
  ASSERT_TRUE(summary.ok());
  ASSERT_EQ(summary->weight_bytes.size(), 3u);
  EXPECT_EQ(summary->weight_bytes[2].first, "wint4");
  EXPECT_EQ(summary->weight_bytes[2].second, (*model)->info().weight_bytes);
  EXPECT_LT(summary->weight_bytes[2].second, summary->weight_bytes[0].second);
  EXPECT_EQ(summary->formats, line);
}

// What is said of a rank without loading is what its weights then take: 300B's proportions, an eighth as wide.
TEST(Quantization, ARankTakesWhatIsSaid) {
  TempFolder folder;
  testing::write_file(
      folder.file("config.json"),
      R"({"architectures":["Ernie4_5_MoeForCausalLM"],"hidden_size":1024,"intermediate_size":3584,"num_hidden_layers":4,
          "num_attention_heads":8,"num_key_value_heads":4,"head_dim":128,"moe_num_experts":64,"moe_k":8,
          "moe_intermediate_size":448,"moe_num_shared_experts":0,"moe_layer_start_index":3,"vocab_size":12928,
          "tie_word_embeddings":false,"max_position_embeddings":256})");
  for (const char* method : {"wint4", "wint8", "block_wise_fp8"}) {
    LoadOptions o;
    o.path = folder.path();
    o.dummy = true, o.shard.ranks = 4;
    o.quantization = read(method, "Ernie4_5_MoeForCausalLM");
    const auto summary = summarize_model(o);
    ASSERT_TRUE(summary.ok()) << summary.error().message;
    const auto model = load_model(o, testing::cpu());
    ASSERT_TRUE(model.ok()) << model.error().message;
    const auto four = std::ranges::find(summary->ranks, 4, &RankSummary::count);
    ASSERT_NE(four, summary->ranks.end());
    const auto said = static_cast<double>(four->weight_bytes.back().second);
    EXPECT_NEAR(static_cast<double>((*model)->info().weight_bytes) / said, 1.0, 0.01) << method;
    // Half or a whole byte an expert's weight, and little beside.
    const double least = 3.0 * 64 * 1024 * 448 / 4 * (method == std::string("wint4") ? 0.5 : 1.0);
    EXPECT_GT(said, least) << method;
  }
}

TEST(Quantization, ARanksSliceMustBeginWhereGroupsCan) {
  TempFolder folder;
  LoadOptions o = dummy(folder, "LlamaForCausalLM", R"({"quantization":"wint4","group_size":32})");
  o.overrides = {{"intermediate_size", 40}};
  o.shard = {1, 2, false};
  const auto model = load_model(o, testing::cpu());
  ASSERT_FALSE(model.ok());
  EXPECT_EQ(
      model.error().message,
      "model.layers.0.mlp.down_proj.weight: a rank's columns would begin at column 20, and wint4-32 needs multiples "
      "of 8; use fewer ranks");
  o.overrides = {{"intermediate_size", 48}};
  EXPECT_TRUE(load_model(o, testing::cpu()).ok());
}

TEST(Quantization, ModulesThatAreNamedStayAsTheyAre) {
  TempFolder folder;
  const std::pair<const char*, const char*> good[] = {{R"(["model.layers.0.mlp.down_proj"])", "1 left alone in bf16"},
                                                      {R"(["re:model\\.layers\\.0\\."])", "4 left alone in bf16"},
                                                      {R"(["lm_head"])", "1 left alone in bf16"}};
  for (const auto& [ignore, part] : good) {
    const LoadOptions o =
        dummy(folder, "LlamaForCausalLM", std::string(R"({"quantization":"wint8","ignore":)") + ignore + "}");
    const auto model = load_model(o, testing::cpu());
    ASSERT_TRUE(model.ok()) << model.error().message;
    EXPECT_NE((*model)->info().formats.find(part), std::string::npos) << (*model)->info().formats;
  }
  const std::pair<const char*, const char*> bad[] = {
      {R"(["model.layers.99.mlp.down_proj"])", "ignore: model.layers.99.mlp.down_proj names no weight of this model"},
      {R"(["re:["])", "ignore: re:[ is no pattern"},
      {R"(["model.layers.0.self_attn.q_proj"])", "are one product and can only be left out together"}};
  for (const auto& [ignore, message] : bad) {
    const LoadOptions o =
        dummy(folder, "LlamaForCausalLM", std::string(R"({"quantization":"wint8","ignore":)") + ignore + "}");
    const auto model = load_model(o, testing::cpu());
    ASSERT_FALSE(model.ok());
    EXPECT_NE(model.error().message.find(message), std::string::npos) << model.error().message;
  }
}

TEST(Quantization, AWeightThatIsNoNumberIsNamed) {
  TempFolder folder;
  const json::Object config = testing::small_config("LlamaForCausalLM", 4, 2);
  testing::write_random_model(folder.path(), config);
  testing::TestTensors tensors = testing::read_tensors(folder.file("model.safetensors"));
  auto& bytes = tensors.at("model.layers.1.mlp.up_proj.weight").bytes;
  bytes[4 * 2] = '\x80', bytes[4 * 2 + 1] = '\x7f';  // infinity
  testing::write_tensors(folder.file("model.safetensors"), tensors);
  LoadOptions o;
  o.path = folder.path();
  ASSERT_TRUE(load_model(o, testing::cpu()).ok());
  for (const char* method : {"wint8", "wint4", "block_wise_fp8"}) {
    o.quantization = read(method);
    const auto model = load_model(o, testing::cpu());
    ASSERT_FALSE(model.ok());
    EXPECT_NE(model.error().message.find("model.layers.1.mlp.up_proj.weight holds NaN or infinity in rows 0 to"),
              std::string::npos)
        << model.error().message;
  }
}

// The head may be quantized where it is the embedding: that one stays as it is.
TEST(Quantization, AnOutputLayerInEightBitsLeavesTheEmbedding) {
  TempFolder folder;
  LoadOptions o = dummy(folder, "Qwen3ForCausalLM", R"({"quantization":"wint8","lm_head_quant_type":"wint8"})");
  o.overrides = {{"tie_word_embeddings", true}};
  const std::vector<int32_t> ids = testing::some_ids(9, 64);
  const std::vector<float> got = testing::logits_of(o, ids);
  o.quantization = {};
  const std::vector<float> plain = testing::logits_of(o, ids);
  ASSERT_EQ(got.size(), plain.size());
  double error = 0.0, size = 0.0;
  for (size_t i = 0; i < got.size(); ++i) error += std::pow(got[i] - plain[i], 2), size += std::pow(plain[i], 2);
  EXPECT_GT(error, 0.0);
  EXPECT_LT(std::sqrt(error / size), 0.1);
}

// Every text case against the same codes as float32: section by section of the forward pass, in chunks and batches.
class QuantizedGolden : public ::testing::TestWithParam<std::tuple<std::string, const char*>> {};

std::vector<std::string> cases() {
  std::vector<std::string> out;
  const std::filesystem::path base = std::filesystem::path(TERN_SOURCE_DIR) / "tests/data/golden";
  for (const auto& e : std::filesystem::directory_iterator(base)) {
    const auto golden = read_golden_case(e.path().string());
    if (golden.ok() && golden->kind == "text") out.push_back(e.path().filename().string());
  }
  std::sort(out.begin(), out.end());
  return out;
}

TEST_P(QuantizedGolden, IsWithinTheToleranceOfItsTwin) {
  const auto& [name, quantization] = GetParam();
  const std::string text = quantization;
  for (const DType type : {DType::kF32, DType::kBF16}) {
    VerifyOptions options{.activation = type, .tolerance = VerifyTolerance::of(type)};
    options.quantization = text.starts_with("{") ? *json::parse(text) : json::Value(text);
    const auto report = verify_case(testing::golden(name), options, testing::cpu());
    ASSERT_TRUE(report.ok()) << report.error().message;
    EXPECT_GE(report->tensors.size(), 6u);
    for (const auto& c : report->tensors)
      EXPECT_TRUE(c.ok) << c.name << ": relative " << c.relative << ", rms " << c.rms << ", tolerance " << c.tolerance;
    for (const auto& c : report->prompts) EXPECT_EQ(c.matched, c.checked) << c.name;
    for (const auto& c : report->statements) EXPECT_TRUE(c.ok) << c.name << ": " << c.detail;
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, QuantizedGolden,
                         ::testing::Combine(::testing::ValuesIn(cases()),
                                            ::testing::Values("wint8", "block_wise_fp8",
                                                              R"({"quantization":"wint4","group_size":32})")),
                         [](const auto& one) { return std::to_string(one.index); });

}  // namespace
}  // namespace tern::model
