// ERNIE-4.5-VL's tower and resampler: the reference, every spelling, order, and independence of an item's rows.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <regex>

#include "vision/tests/support.h"

namespace tern::vision {
namespace {

using testing::Encoded;
using testing::TempFolder;
using testing::TestTensors;

constexpr int kPatch = 4, kValues = 3 * kPatch * kPatch, kWidth = 32, kText = 48;

json::Object small_config() {
  return json::parse(
             R"({"architectures":["Ernie4_5_VLMoeForConditionalGeneration"],"hidden_size":48,"rms_norm_eps":1e-5,
                 "pixel_hidden_size":32,"spatial_conv_size":2,"temporal_conv_size":2,
                 "vision_config":{"depth":2,"embed_dim":32,"hidden_size":32,"num_heads":2,"mlp_ratio":4,
                                  "patch_size":4,"in_channels":3,"spatial_merge_size":2,"hidden_act":"quick_gelu"}})")
      .value()
      .get_object();
}

// Random weights in the spelling of the released files.
TestTensors small_weights() {
  TestTensors t;
  uint64_t seed = 1;
  const auto linear = [&](const std::string& name, int64_t out, int64_t in, bool bias) {
    t[name + ".weight"] = testing::random_tensor({out, in}, seed++, 1.0f / std::sqrt(static_cast<float>(in)));
    if (bias) t[name + ".bias"] = testing::random_tensor({out}, seed++, 0.1f);
  };
  const auto norm = [&](const std::string& name, int64_t n, bool bias = true) {
    t[name + ".weight"] = testing::random_tensor({n}, seed++, 0.1f, 1.0f);
    if (bias) t[name + ".bias"] = testing::random_tensor({n}, seed++, 0.1f);
  };
  linear("vision_model.patch_embed.proj", kWidth, kValues, false);
  for (int i = 0; i < 2; ++i) {
    const std::string at = fmt::format("vision_model.blocks.{}.", i);
    norm(at + "norm1", kWidth), norm(at + "norm2", kWidth);
    linear(at + "attn.qkv", 3 * kWidth, kWidth, true), linear(at + "attn.proj", kWidth, kWidth, true);
    linear(at + "mlp.fc1", 4 * kWidth, kWidth, true), linear(at + "mlp.fc2", kWidth, 4 * kWidth, true);
  }
  norm("vision_model.ln", kWidth);
  for (const auto& [name, in] : {std::pair<std::string, int64_t>{"spatial", 4 * kWidth}, {"temporal", 8 * kWidth}}) {
    const std::string at = "model.resampler_model." + name + "_linear.";
    linear(at + "0", 4 * kWidth, in, true), linear(at + "2", 4 * kWidth, 4 * kWidth, true), norm(at + "3", 4 * kWidth);
  }
  linear("model.resampler_model.mlp", kText, 4 * kWidth, true);
  norm("model.resampler_model.after_norm", kText, false);
  return t;
}

model::LoadOptions write_model(const TempFolder& folder, const json::Object& config, const TestTensors& tensors) {
  testing::write_file(folder.path() + "/config.json", json::dump(config));
  testing::write_tensors(folder.path() + "/model.safetensors", tensors);
  model::LoadOptions o;
  o.path = folder.path();
  return o;
}

const std::vector<Grid> kGrids = {{1, 4, 6}, {2, 2, 4}, {1, 2, 2}, {4, 6, 2}, {3, 2, 2}};

int64_t rows_of(std::span<const Grid> grids) {
  int64_t n = 0;
  for (const Grid& g : grids) n += g.rows();
  return n;
}

std::vector<float> rows_with(const TestTensors& tensors, const json::Object& config, DType type) {
  TempFolder folder;
  model::LoadOptions o = write_model(folder, config, tensors);
  o.activation = type;
  const auto encoded = testing::encode(o, kGrids, testing::random_patches(rows_of(kGrids), kValues, 5));
  if (!encoded.ok()) return ADD_FAILURE() << encoded.error().message, std::vector<float>{};
  return encoded->rows;
}

void rename(TestTensors& t, const std::string& from, const std::string& to) {
  TestTensors out;
  for (auto& [name, tensor] : t) out[std::regex_replace(name, std::regex(from), to)] = std::move(tensor);
  t = std::move(out);
}

void turn(TestTensors& t) {
  for (auto& [name, tensor] : t)
    if (tensor.shape.size() == 2) tensor = testing::transposed(tensor);
}

TEST(ErnieTower, EverySpellingIsTheSameTower) {
  const TestTensors base = small_weights();
  using Rewrite = std::function<void(TestTensors&)>;
  const std::vector<std::pair<const char*, Rewrite>> spellings = {
      {"transformers 5", [](TestTensors& t) { rename(t, "^vision_model", "model.vision_model"); }},
      {"native export",
       [](TestTensors& t) {
         rename(t, "^vision_model", "model.vision_tower");
         rename(t, "_linear\\.0", "_linear.fc1"), rename(t, "_linear\\.2", "_linear.fc2");
         rename(t, "_linear\\.3", "_linear.ln");
         // The text model lies one level deeper there.
         t["model.language_model.embed_tokens.weight"] = testing::random_tensor({4, kText}, 1, 1.0f);
       }},
      {"Paddle",
       [](TestTensors& t) {
         rename(t, "^vision_model", "ernie.vision_model"), rename(t, "^model\\.", "ernie.");
         turn(t);
         t["ernie.embed_tokens.weight"] = testing::random_tensor({4, kText}, 1, 1.0f);
       }},
      {"Paddle without a root", [](TestTensors& t) {
         rename(t, "^model\\.", "");
         turn(t);
       }}};
  for (const DType type : {DType::kF32, DType::kBF16}) {
    const std::vector<float> want = rows_with(base, small_config(), type);
    ASSERT_EQ(want.size(), static_cast<size_t>((6 + 2 + 1 + 6 + 2) * kText));
    for (const auto& [name, rewrite] : spellings) {
      TestTensors t = base;
      rewrite(t);
      EXPECT_EQ(rows_with(t, small_config(), type), want) << name;
    }
    // The nested form of the configuration.
    json::Object nested = json::parse(R"({"architectures":["Ernie4_5_VLMoeForConditionalGeneration"],
        "text_config":{"hidden_size":48,"rms_norm_eps":1e-5},
        "vision_config":{"depth":2,"hidden_size":32,"num_heads":2,"intermediate_size":128,"patch_size":4,
          "in_channels":3,"spatial_merge_size":2,"temporal_merge_size":2,"rms_norm_eps":1e-6,
          "rope_parameters":{"rope_theta":10000.0,"rope_type":"axial"}}})")
                              .value()
                              .get_object();
    EXPECT_EQ(rows_with(base, nested, type), want);
  }
}

TEST(ErnieTower, TensorsOfTheTextModelAreNotItsBusinessButItsOwnAre) {
  TempFolder folder;
  TestTensors t = small_weights();
  t["model.layers.0.mlp.gate.weight_1"] = testing::random_tensor({4, 4}, 1, 1.0f);
  EXPECT_TRUE(load_tower(write_model(folder, small_config(), t), testing::cpu()).ok());
  t["vision_model.blocks.2.norm1.weight"] = testing::random_tensor({kWidth}, 1, 1.0f);
  t.erase("vision_model.ln.bias");
  const auto tower = load_tower(write_model(folder, small_config(), t), testing::cpu());
  ASSERT_FALSE(tower.ok());
  for (const char* part : {"1 tensors missing, 1 unexpected", "vision_model.blocks.2.norm1.weight", "ln.bias"})
    EXPECT_NE(tower.error().message.find(part), std::string::npos) << tower.error().message;
}

TEST(ErnieTower, AnItemsRowsDoNotDependOnItsNeighbours) {
  TempFolder folder;
  model::LoadOptions o = write_model(folder, small_config(), small_weights());
  const std::vector<float> patches = testing::random_patches(rows_of(kGrids), kValues, 9);
  for (const DType type : {DType::kF32, DType::kBF16}) {
    o.activation = type;
    const auto tower = load_tower(o, testing::cpu());
    ASSERT_TRUE(tower.ok()) << tower.error().message;
    const auto all = testing::encode(**tower, kGrids, patches);
    ASSERT_TRUE(all.ok()) << all.error().message;
    size_t row = 0, out = 0;
    for (const Grid& g : kGrids) {
      const auto n = static_cast<size_t>(g.rows()) * kValues;
      const auto alone = testing::encode(**tower, {&g, 1}, {patches.data() + row, n});
      ASSERT_TRUE(alone.ok());
      ASSERT_LE(out + alone->rows.size(), all->rows.size());
      EXPECT_EQ(std::memcmp(alone->rows.data(), all->rows.data() + out, alone->rows.size() * sizeof(float)), 0);
      row += n, out += alone->rows.size();
    }
    EXPECT_EQ(out, all->rows.size());
  }
}

TEST(ErnieTower, ALoneFrameIsItsOwnPair) {
  TempFolder folder;
  model::LoadOptions o = write_model(folder, small_config(), small_weights());
  const auto tower = load_tower(o, testing::cpu());
  ASSERT_TRUE(tower.ok());
  const std::vector<float> a = testing::random_patches(8, kValues, 1), b = testing::random_patches(8, kValues, 2);
  const auto join = [](std::vector<float> x, const std::vector<float>& y) {
    x.insert(x.end(), y.begin(), y.end());
    return x;
  };
  const auto rows = [&](const Grid& g, const std::vector<float>& patches) {
    return testing::encode(**tower, {&g, 1}, patches).value().rows;
  };
  const auto one = rows({1, 2, 4}, a);
  EXPECT_EQ(one.size(), static_cast<size_t>(2 * kText));
  EXPECT_EQ(rows({2, 2, 4}, join(a, a)), one);
  EXPECT_NE(rows({2, 2, 4}, join(a, b)), one);
  // The last of an odd number likewise; frames see themselves only.
  EXPECT_EQ(rows({3, 2, 4}, join(join(a, b), a)), join(rows({2, 2, 4}, join(a, b)), one));
}

TEST(ErnieTower, PositionsFollowTheBlocks) {
  TempFolder folder;
  const auto tower = load_tower(write_model(folder, small_config(), small_weights()), testing::cpu());
  ASSERT_TRUE(tower.ok());
  TowerIndex index;
  const Grid g{1, 4, 4};
  (*tower)->index({&g, 1}, index);
  const std::vector<int32_t> y = {0, 0, 1, 1, 0, 0, 1, 1, 2, 2, 3, 3, 2, 2, 3, 3},
                             x = {0, 1, 0, 1, 2, 3, 2, 3, 0, 1, 0, 1, 2, 3, 2, 3};
  ASSERT_GE(index.ints.size(), 48u);
  EXPECT_EQ(std::vector<int32_t>(index.ints.begin() + 16, index.ints.begin() + 32), y);
  EXPECT_EQ(std::vector<int32_t>(index.ints.begin() + 32, index.ints.begin() + 48), x);
  EXPECT_EQ(std::vector<int32_t>(index.ints.begin() + 48, index.ints.end()),
            (std::vector<int32_t>{0, 16, 0, 1, 2, 3, 0, 1, 2, 3}));
}

TEST(ErnieTower, ImpossibleConfigurationsAreErrors) {
  const auto error = [](const char* more) {
    TempFolder folder;
    json::Object config = small_config();
    const json::Object changes = json::parse(more).value().get_object();
    for (const auto& [key, value] : changes) {
      if (key == "vision_config") {
        for (const auto& [k, v] : value.get_object()) config["vision_config"].get_object()[k] = v;
      } else {
        config[key] = value;
      }
    }
    const auto tower = load_tower(write_model(folder, config, small_weights()), testing::cpu());
    return tower.ok() ? std::string() : tower.error().message;
  };
  EXPECT_EQ(error("{}"), "");
  EXPECT_NE(error(R"({"vision_config":{"num_heads":3}})").find("3 heads"), std::string::npos);
  EXPECT_NE(error(R"({"vision_config":{"hidden_act":"relu"}})").find("relu"), std::string::npos);
  EXPECT_NE(error(R"({"vision_config":{"embed_dim":64}})").find("embed_dim"), std::string::npos);
  EXPECT_NE(error(R"({"vision_config":{"depth":-1}})").find("depth"), std::string::npos);
  EXPECT_NE(error(R"({"temporal_conv_size":3})").find("pairs"), std::string::npos);
  EXPECT_NE(error(R"({"pixel_hidden_size":64})").find("pixel_hidden_size"), std::string::npos);
}

TEST(ErnieTower, DummyWeightsNeedNoFiles) {
  TempFolder folder;
  testing::write_file(folder.path() + "/config.json", json::dump(small_config()));
  model::LoadOptions o;
  o.path = folder.path(), o.dummy = true;
  const Grid g{1, 4, 4};
  const auto encoded = testing::encode(o, {&g, 1}, testing::random_patches(16, kValues, 3));
  ASSERT_TRUE(encoded.ok()) << encoded.error().message;
  EXPECT_EQ(encoded->rows.size(), static_cast<size_t>(4 * kText));
  for (float v : encoded->rows) EXPECT_TRUE(std::isfinite(v));
}

// ERNIE-4.5-VL-28B-A3B as published (models-ernie-paddleocr.md 1.2, 3.2).
TEST(ErnieTower, TheReleasedShapeHasItsSize) {
  TempFolder folder;
  testing::write_file(
      folder.path() + "/config.json",
      R"({"architectures":["Ernie4_5_VLMoeForConditionalGeneration"],"hidden_size":2560,"pixel_hidden_size":1280,
          "spatial_conv_size":2,"temporal_conv_size":2,"use_temporal_conv":true,"vision_config":{"depth":32,
          "embed_dim":1280,"hidden_size":1280,"hidden_act":"quick_gelu","mlp_ratio":4,"num_heads":16,"in_channels":3,
          "patch_size":14,"spatial_merge_size":2,"attn_sep":true}})");
  model::LoadOptions o;
  o.path = folder.path();
  const auto s = summarize_tower(o);
  ASSERT_TRUE(s.ok()) << s.error().message;
  EXPECT_EQ(s->info.patch_values, 588);
  EXPECT_EQ(s->info.hidden, 2560);
  const auto linear = [](int64_t out, int64_t in) { return out * in + out; };
  const int64_t w = 1280, joined = 5120;
  const int64_t block = 4 * w + linear(3 * w, w) + linear(w, w) + linear(4 * w, w) + linear(w, 4 * w);
  const int64_t halves = 2 * linear(joined, joined) + linear(joined, 2 * joined) + linear(joined, joined) + 4 * joined;
  EXPECT_EQ(s->info.parameters, 588 * w + 32 * block + 2 * w + halves + linear(2560, joined) + 2560);
}

// ---- the reference

void expect_near(const std::string& name, const std::vector<float>& got, const std::vector<float>& want, DType type) {
  ASSERT_EQ(got.size(), want.size()) << name;
  double error = 0.0, top = 0.0, square = 0.0, all = 0.0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double d = static_cast<double>(got[i]) - static_cast<double>(want[i]);
    error = std::max(error, std::fabs(d)), top = std::max(top, std::fabs(static_cast<double>(want[i])));
    square += d * d, all += static_cast<double>(want[i]) * static_cast<double>(want[i]);
  }
  EXPECT_LE(error / top, type == DType::kF32 ? 2e-5 : 4e-2) << name;
  EXPECT_LE(std::sqrt(square / all), type == DType::kF32 ? 1e-5 : 2.5e-2) << name;
}

class ErnieGolden : public ::testing::TestWithParam<DType> {};

TEST_P(ErnieGolden, TowerAndResamplerGiveTheReferenceNumbers) {
  const std::string source = TERN_SOURCE_DIR;
  std::string folder = source + "/tests/data/golden/ernie4_5_vl_moe";
  if (!std::filesystem::exists(folder)) folder = source + "/../shared/golden/cases/ernie4_5_vl_moe";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "there is no reference case ernie4_5_vl_moe";
  const TestTensors golden = testing::read_tensors(folder + "/golden.safetensors");
  model::LoadOptions o;
  o.path = folder, o.activation = GetParam();
  const auto tower = load_tower(o, testing::cpu());
  ASSERT_TRUE(tower.ok()) << tower.error().message;
  for (const char* prompt : {"one", "two", "tall", "video"}) {
    const std::string at = std::string(prompt) + ".";
    const bool video = at == "video.";
    const std::string& table = golden.at(at + (video ? "grid_thw" : "image_grid_thw")).bytes;
    std::vector<Grid> grids;
    for (size_t i = 0; i + 24 <= table.size(); i += 24) {
      int64_t thw[3];
      std::memcpy(thw, table.data() + i, sizeof thw);
      grids.push_back({static_cast<int>(thw[0]), static_cast<int>(thw[1]), static_cast<int>(thw[2])});
    }
    const auto encoded = testing::encode(**tower, grids, testing::floats(golden.at(at + "pixel_values")));
    ASSERT_TRUE(encoded.ok()) << encoded.error().message;
    if (!video)
      expect_near(at + "tower", encoded->seen.at("tower"), testing::floats(golden.at(at + "vision_last_hidden")),
                  GetParam());
    expect_near(at + "vision", encoded->rows, testing::floats(golden.at(at + (video ? "embeds" : "image_embeds"))),
                GetParam());
    EXPECT_EQ(encoded->seen.at("vision"), encoded->rows);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, ErnieGolden, ::testing::Values(DType::kF32, DType::kBF16),
                         [](const auto& type) { return std::string(dtype_name(type.param)); });

}  // namespace
}  // namespace tern::vision
