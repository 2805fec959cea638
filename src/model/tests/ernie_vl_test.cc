// The text side of ERNIE-4.5-VL: every spelling of the weights, two isolated banks of experts, three positions.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <regex>

#include "model/arch/registry.h"
#include "model/decoder.h"
#include "model/run/sequence_runner.h"
#include "model/tests/support.h"

namespace tern::model {
namespace {

using testing::stack;
using testing::stacked_rows;
using testing::TempFolder;
using testing::TestTensor;
using testing::TestTensors;
using testing::transposed;

constexpr int kExperts = 4, kLayers = 2, kFirstPictureId = 60;
const std::string kLast = "model.layers.1.mlp.";  // the layer with both banks

json::Object parse(const std::string& text) { return json::parse(text).value().get_object(); }

// Flat, as released. Experts in layer 1 only.
json::Object flat(const std::string& more = "{}") {
  json::Object o = parse(R"({"architectures":["Ernie4_5_VLMoeForConditionalGeneration"],"model_type":"ernie4_5_moe_vl",
      "vocab_size":96,"hidden_size":64,"intermediate_size":96,"num_hidden_layers":2,"num_attention_heads":4,
      "num_key_value_heads":2,"head_dim":16,"max_position_embeddings":512,"rms_norm_eps":1e-5,"rope_theta":500000.0,
      "tie_word_embeddings":true,"moe_num_experts":[4,4],"moe_k":2,"moe_intermediate_size":[32,16],
      "moe_num_shared_experts":2,"moe_layer_start_index":[1,1],"moe_layer_end_index":[3,2],"moe_layer_interval":1,
      "im_patch_id":60,"freq_allocation":2,"rope_3d":true})");
  merge_json(o, parse(more));
  return o;
}

// The same model as native exports describe it.
json::Object nested() {
  return parse(R"({"architectures":["Ernie4_5_VLMoeForConditionalGeneration"],"model_type":"ernie4_5_vl_moe",
      "image_token_id":60,"tie_word_embeddings":true,"text_config":{"model_type":"ernie4_5_vl_moe_text",
      "vocab_size":96,"hidden_size":64,"intermediate_size":96,"num_hidden_layers":2,"num_attention_heads":4,
      "num_key_value_heads":2,"head_dim":16,"max_position_embeddings":512,"rms_norm_eps":1e-5,
      "moe_num_experts":4,"moe_k":2,"moe_intermediate_size":[32,16],"moe_num_shared_experts":2,
      "mlp_layer_types":["dense","sparse"],
      "rope_parameters":{"mrope_section":[3,3,2],"rope_theta":500000.0,"rope_type":"default"}},
      "vision_config":{"depth":1,"hidden_size":32}})");
}

TestTensor take(TestTensors& t, const std::string& name) {
  TestTensor out = t.at(name);
  t.erase(name);
  return out;
}

void rename(TestTensors& t, const std::string& from, const std::string& to) {
  TestTensors out;
  for (auto& [name, tensor] : t) out[std::regex_replace(name, std::regex(from), to)] = std::move(tensor);
  t = std::move(out);
}

// Random weights as released ("-PT"): routers [in, out], one bias for both banks.
TestTensors released(const json::Object& config) {
  TempFolder folder;
  testing::write_random_model(folder.path(), config);
  TestTensors t = testing::read_tensors(folder.file("model.safetensors"));
  for (const char* gate : {"gate.weight", "gate.weight_1"}) t[kLast + gate] = transposed(t.at(kLast + gate));
  const std::string bias = "gate.moe_statics.e_score_correction_bias";
  TestTensor both = stack({take(t, kLast + "text_moe." + bias), take(t, kLast + "vision_moe." + bias)});
  t[kLast + "moe_statics.e_score_correction_bias"] = both;
  // A tower lies beside it.
  t["vision_model.ln.weight"] = {"BF16", {1}, "12"};
  t["model.resampler_model.mlp.weight"] = {"BF16", {1}, "12"};
  return t;
}

LoadOptions write_model(const TempFolder& folder, const json::Object& config, const TestTensors& tensors, DType type) {
  testing::write_file(folder.file("config.json"), json::dump(config));
  testing::write_tensors(folder.file("model.safetensors"), tensors);
  LoadOptions o;
  o.path = folder.path(), o.activation = type;
  return o;
}

std::vector<float> logits(const json::Object& config, const TestTensors& tensors, const std::vector<int32_t>& ids,
                          DType type = DType::kBF16) {
  TempFolder folder;
  return testing::logits_of(write_model(folder, config, tensors, type), ids);
}

// Separate names for the banks, experts stacked when asked for.
void native_names(TestTensors& t, bool stacked) {
  TestTensor bias = take(t, kLast + "moe_statics.e_score_correction_bias");
  const size_t half = bias.bytes.size() / 2;
  int first = 0;
  for (const char* bank : {"text_moe.", "vision_moe."}) {
    const std::string own = kLast + bank;
    t[own + "gate.weight"] = transposed(take(t, kLast + (first == 0 ? "gate.weight" : "gate.weight_1")));
    t[own + "gate.moe_statics.e_score_correction_bias"] = {
        "BF16", {1, kExperts}, bias.bytes.substr(first == 0 ? 0 : half, half)};
    std::vector<TestTensor> gate_up, down;
    for (int e = 0; e < kExperts; ++e) {
      const std::string from = kLast + "experts." + std::to_string(first + e) + ".";
      const TestTensor g = take(t, from + "gate_proj.weight"), u = take(t, from + "up_proj.weight");
      gate_up.push_back(stacked_rows({g, u}));
      down.push_back(take(t, from + "down_proj.weight"));
      if (stacked) continue;
      const std::string to = own + "experts." + std::to_string(e) + ".";
      t[to + "gate_proj.weight"] = g, t[to + "up_proj.weight"] = u, t[to + "down_proj.weight"] = down.back();
    }
    if (stacked) t[own + "experts.gate_up_proj"] = stack(gate_up), t[own + "experts.down_proj"] = stack(down);
    first = kExperts;
  }
  rename(t, "^vision_model", "model.vision_tower");
  rename(t, "^model\\.(embed|layers|norm)", "model.language_model.$1");
}

void paddle(TestTensors& t) {
  TestTensors out;
  for (auto& [name, tensor] : t) {
    const size_t q = name.find("q_proj"), gate = name.find("gate_proj");
    if (q != std::string::npos) {
      const std::string at = name.substr(0, q);
      out[at + "qkv_proj.weight"] =
          transposed(stacked_rows({tensor, t.at(at + "k_proj.weight"), t.at(at + "v_proj.weight")}));
    } else if (gate != std::string::npos) {
      const std::string at = name.substr(0, gate);
      out[at + "up_gate_proj.weight"] = transposed(stacked_rows({tensor, t.at(at + "up_proj.weight")}));
    } else if (name.find("o_proj") != std::string::npos || name.find("down_proj") != std::string::npos) {
      out[name] = transposed(tensor);
    } else if (!std::regex_search(name, std::regex("(k|v|up)_proj"))) {
      out[name] = tensor;  // routers are [in, out] already
    }
  }
  t = std::move(out);
  rename(t, "^model\\.", "ernie.");
}

TEST(ErnieVl, EverySpellingIsTheSameModel) {
  const auto ids = testing::some_ids(60, 96);
  const TestTensors base = released(flat());
  using Rewrite = std::function<void(TestTensors&)>;
  const std::vector<std::pair<const char*, Rewrite>> spellings = {
      {"transformers 5", [](TestTensors& t) { rename(t, "^vision_model", "model.vision_model"); }},
      {"native export", [](TestTensors& t) { native_names(t, true); }},
      {"native export, experts one by one", [](TestTensors& t) { native_names(t, false); }},
      {"Paddle", paddle},
      {"bias in the gate", [](TestTensors& t) { rename(t, "mlp\\.moe_statics", "mlp.gate.moe_statics"); }}};
  for (const DType type : {DType::kF32, DType::kBF16}) {
    const auto want = logits(flat(), base, ids, type);
    ASSERT_EQ(want.size(), ids.size() * 96);
    EXPECT_EQ(logits(nested(), base, ids, type), want);
    for (const auto& [name, rewrite] : spellings) {
      TestTensors t = base;
      rewrite(t);
      EXPECT_EQ(logits(flat(), t, ids, type), want) << name;
      EXPECT_EQ(logits(nested(), t, ids, type), want) << name;
    }
  }
}

// With as many experts as values in a row, only the name tells how a router is stored (trap 3).
TEST(ErnieVl, SquareRoutersFollowTheirNames) {
  const json::Object config = flat(R"({"moe_num_experts":[64,64],"moe_intermediate_size":[16,8]})");
  TempFolder folder;
  testing::write_random_model(folder.path(), config);
  TestTensors own = testing::read_tensors(folder.file("model.safetensors"));
  TestTensors side_by_side = own, apart = own;
  for (const char* gate : {"gate.weight", "gate.weight_1"})
    side_by_side[kLast + gate] = transposed(own.at(kLast + gate));
  apart[kLast + "text_moe.gate.weight"] = take(apart, kLast + "gate.weight");
  apart[kLast + "vision_moe.gate.weight"] = take(apart, kLast + "gate.weight_1");
  const auto ids = testing::some_ids(40, 96);
  const auto want = logits(config, apart, ids);
  EXPECT_EQ(logits(config, side_by_side, ids), want);
  EXPECT_NE(logits(config, own, ids), want);
}

TEST(ErnieVl, BanksAreIsolated) {
  const TestTensors base = released(flat());
  std::vector<int32_t> text, pictures;
  for (int i = 0; i < 30; ++i) text.push_back(2 + i * 7 % 57), pictures.push_back(kFirstPictureId + i * 5 % 36);
  std::vector<int32_t> mixed = text;
  mixed.insert(mixed.end(), pictures.begin(), pictures.end());
  TestTensors other = base;  // another second bank
  const auto disturb = [&](const std::string& name) {
    std::string& bytes = other.at(name).bytes;
    for (size_t i = 1; i < bytes.size(); i += 2) bytes[i] = static_cast<char>(bytes[i] ^ 0x80);  // signs
  };
  disturb(kLast + "gate.weight_1");
  for (int e = kExperts; e < 2 * kExperts; ++e) disturb(kLast + "experts." + std::to_string(e) + ".down_proj.weight");
  EXPECT_EQ(logits(flat(), other, text), logits(flat(), base, text));
  EXPECT_NE(logits(flat(), other, pictures), logits(flat(), base, pictures));
  // The text in front of pictures does not notice them, whatever else is in the step.
  const auto a = logits(flat(), base, mixed), b = logits(flat(), other, mixed), c = logits(flat(), base, text);
  const size_t n = text.size() * 96;
  EXPECT_TRUE(std::equal(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(n), b.begin()));
  EXPECT_TRUE(std::equal(c.begin(), c.end(), a.begin()));
  EXPECT_NE(a, b);
}

TEST(ErnieVl, ChunksDoNotChangeLogits) {
  TempFolder folder;
  const auto ids = testing::some_ids(50, 96);
  for (const DType type : {DType::kF32, DType::kBF16}) {
    const auto model = load_model(write_model(folder, flat(), released(flat()), type), testing::cpu());
    ASSERT_TRUE(model.ok()) << model.error().message;
    const auto want = testing::logits_of(**model, ids);
    for (const size_t chunk : {1, 7, 32}) {
      auto runner = SequenceRunner::make(**model, testing::cpu(), {.max_tokens = 64, .max_rows = 2, .max_length = 64});
      ASSERT_TRUE(runner.ok());
      std::vector<float> got;
      for (size_t at = 0; at < ids.size(); at += chunk) {
        const SequenceRunner::Row row{0, {ids.data() + at, std::min(chunk, ids.size() - at)}, true};
        const auto part = (*runner)->step({&row, 1});
        ASSERT_TRUE(part.ok()) << part.error().message;
        got.insert(got.end(), part->begin(), part->end());
      }
      EXPECT_EQ(got, want) << chunk;
    }
  }
}

// A layer in which one bank has no experts gives that bank's tokens a dense MLP.
TEST(ErnieVl, ABankWithoutExpertsIsADenseMlp) {
  const json::Object first_only = flat(R"({"moe_layer_start_index":[0,1],"moe_num_shared_experts":0})");
  const json::Object dense = flat(R"({"moe_num_shared_experts":0})");
  TempFolder folder;
  testing::write_random_model(folder.path(), first_only);
  TestTensors t = testing::read_tensors(folder.file("model.safetensors"));
  ASSERT_EQ(t.count("model.layers.0.mlp.gate.weight_1"), 0u);
  ASSERT_EQ(t.count("model.layers.0.mlp.gate_proj.weight"), 1u);
  std::vector<int32_t> pictures;
  for (int i = 0; i < 30; ++i) pictures.push_back(kFirstPictureId + i * 5 % 36);
  const auto ids = testing::some_ids(30, 96);
  for (const DType type : {DType::kF32, DType::kBF16}) {
    const auto of_pictures = logits(first_only, t, pictures, type), of_mixed = logits(first_only, t, ids, type);
    TestTensors plain = t;
    for (const auto& [name, tensor] : t)
      if (std::regex_search(name, std::regex("layers\\.0\\.mlp\\.(experts|gate\\.|text_moe)"))) plain.erase(name);
    EXPECT_EQ(logits(dense, plain, pictures, type), of_pictures);
    EXPECT_NE(logits(dense, plain, ids, type), of_mixed);  // text has its experts there
  }
  // The other way round.
  const auto spec = read_spec(flat(R"({"moe_layer_start_index":[1,0],"moe_layer_end_index":[-1,0]})"));
  ASSERT_TRUE(spec.ok());
  EXPECT_EQ(spec->moe_layer, (std::vector<uint8_t>{kSecondBank, kFirstBank}));
  TempFolder swapped;
  testing::write_random_model(swapped.path(), flat(R"({"moe_layer_start_index":[1,0],"moe_layer_end_index":[-1,0]})"));
  LoadOptions o;
  o.path = swapped.path();
  for (float v : testing::logits_of(o, ids)) ASSERT_TRUE(std::isfinite(v));
}

TEST(ErnieVl, ConfigurationsOfBothFormsReadAlike) {
  const auto a = read_spec(flat()), b = read_spec(nested());
  ASSERT_TRUE(a.ok()) << a.error().message;
  ASSERT_TRUE(b.ok()) << b.error().message;
  for (const auto* s : {&*a, &*b}) {
    EXPECT_EQ(s->moe_layer, (std::vector<uint8_t>{kDenseLayer, kFirstBank | kSecondBank}));
    EXPECT_EQ(s->moe.experts, 4);
    EXPECT_EQ(s->moe.second_experts, 4);
    EXPECT_EQ(s->moe.intermediate, 32);
    EXPECT_EQ(s->moe.second_intermediate, 16);
    EXPECT_EQ(s->moe.shared_intermediate, 64);
    EXPECT_EQ(s->moe.second_tokens.from, 60);
    EXPECT_EQ(make_rope_table(s->rope, 0).axis, (std::vector<uint8_t>{1, 2, 1, 2, 1, 2, 0, 0}));
    EXPECT_EQ(make_rope_table(s->rope, 0).inv_freq, make_rope_table(a->rope, 0).inv_freq);
  }
  const auto error = [](const char* more) {
    const auto spec = read_spec(flat(more));
    return spec.ok() ? std::string() : spec.error().message;
  };
  EXPECT_NE(error(R"({"moe_num_experts":[4,4,4]})").find("moe_num_experts"), std::string::npos);
  EXPECT_NE(error(R"({"moe_num_experts":[4,1]})").find("second bank"), std::string::npos);
  EXPECT_NE(error(R"({"freq_allocation":9})").find("freq_allocation"), std::string::npos);
  EXPECT_NE(error(R"({"rope_scaling":{"mrope_section":[4,2,2]}})").find("mrope_section"), std::string::npos);
  EXPECT_NE(error(R"({"num_hidden_layers":4,"moe_layer_start_index":[0,3],"moe_layer_end_index":[1,3]})")
                .find("layer 2 lies between"),
            std::string::npos);
  EXPECT_NE(error(R"({"expert_predicate":"none"})").find("expert_predicate"), std::string::npos);
}

TEST(ErnieVl, TheExpertsOfATokenAreARuleOfItsId) {
  const char* ids = R"("im_patch_id":60,"image_start_token_id":70,"image_end_token_id":71,"video_start_token_id":72,
      "video_end_token_id":73)";
  const auto members = [&](const std::string& more) {
    const auto spec = read_spec(flat(std::string("{") + ids + more + "}"));
    std::vector<int32_t> out;
    for (int32_t id = 0; spec.ok() && id < 80; ++id)
      if (spec->moe.second_tokens.contains(id)) out.push_back(id);
    return out;
  };
  EXPECT_EQ(members("").front(), 60);
  EXPECT_EQ(members("").size(), 20u);
  EXPECT_EQ(members(R"(,"expert_predicate":"placeholder")"), (std::vector<int32_t>{60}));
  EXPECT_EQ(members(R"(,"expert_predicate":"by_type")"), (std::vector<int32_t>{60, 70, 71, 72, 73}));
  EXPECT_EQ(members(R"(,"expert_predicate":"by_type","video_token_id":61)"),
            (std::vector<int32_t>{60, 61, 70, 71, 72, 73}));
}

// ERNIE-4.5-VL-28B-A3B as published (models-ernie-paddleocr.md 1.1), without its tower.
TEST(ErnieVl, TheReleasedShapeHasItsSize) {
  TempFolder folder;
  testing::write_file(
      folder.file("config.json"),
      R"({"architectures":["Ernie4_5_VLMoeForConditionalGeneration"],"model_type":"ernie4_5_moe_vl","vocab_size":103424,
      "hidden_size":2560,"intermediate_size":12288,"num_hidden_layers":28,"num_attention_heads":20,
      "num_key_value_heads":4,"head_dim":128,"max_position_embeddings":131072,"tie_word_embeddings":true,
      "moe_num_experts":[64,64],"moe_intermediate_size":[1536,512],"moe_k":6,"moe_num_shared_experts":2,
      "moe_layer_start_index":[1,1],"moe_layer_end_index":[29,28],"moe_use_aux_free":true,"freq_allocation":20})");
  LoadOptions options;
  options.path = folder.path();
  const auto s = summarize_model(options);
  ASSERT_TRUE(s.ok()) << s.error().message;
  const int64_t h = 2560, attention = 2 * h * 2560 + 2 * h * 512, norms = 2 * h, moe_layers = 27;
  const int64_t text = 3 * h * 1536, vision = 3 * h * 512, shared = 2 * text, routers = 2 * 64 * h;
  const int64_t rest = 103424 * h + h + 28 * (attention + norms) + 3 * h * 12288 + moe_layers * (shared + routers);
  EXPECT_EQ(s->parameters, rest + moe_layers * 64 * (text + vision));
  EXPECT_EQ(s->active_parameters, rest + moe_layers * 6 * text);
  EXPECT_GT(s->parameters, 27'900'000'000);
  EXPECT_LT(s->parameters, 29'000'000'000);
  EXPECT_EQ(s->kv_bytes_per_token, 28u * 2 * 4 * 128 * 2);
}

}  // namespace
}  // namespace tern::model
