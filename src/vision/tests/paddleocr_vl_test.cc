// PaddleOCR-VL: every spelling of weights and configuration, whose tensor is whose, independence of an item's rows, the
// resampled position table, and the released model's numbers.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <functional>

#include "model/loader.h"
#include "vision/position_table.h"
#include "vision/tests/support.h"
#include "vision/verify/verify_case.h"

namespace tern::vision {
namespace {

namespace fs = std::filesystem;
using testing::TempFolder;
using testing::TestTensors;

std::string golden() { return std::string(TERN_SOURCE_DIR) + "/tests/data/golden/paddleocr_vl"; }

json::Object golden_config() { return json::parse_file(golden() + "/config.json").value().get_object(); }

// The reference case with other weights and configuration.
void copy_case(const TempFolder& to, const json::Object& config, const TestTensors& tensors) {
  for (const auto& e : fs::directory_iterator(golden())) {
    const std::string name = e.path().filename().string();
    if (name != "config.json" && name != "model.safetensors") fs::copy(e.path(), to.path() + "/" + name);
  }
  testing::write_file(to.path() + "/config.json", json::dump(config));
  testing::write_tensors(to.path() + "/model.safetensors", tensors);
}

void replace_head(TestTensors& t, const std::string& from, const std::string& to) {
  TestTensors out;
  for (auto& [name, tensor] : t)
    out[name.compare(0, from.size(), from) == 0 ? to + name.substr(from.size()) : name] = std::move(tensor);
  t = std::move(out);
}

// The text model's keys at the root, as the released file has them.
json::Object flat_config() {
  json::Object flat = golden_config();
  const json::Object text = flat.at("text_config").get_object();
  flat.erase("text_config");
  for (const auto& [key, value] : text)
    if (key != "model_type" && key != "rope_parameters") flat[key] = value;
  flat["rope_theta"] = 500000.0;
  flat["rope_scaling"] =
      json::Object{{"mrope_section", json::Array{16, 24, 24}}, {"rope_type", "default"}, {"type", "default"}};
  flat["compression_ratio"] = 1.0;
  flat["sliding_window"] = nullptr;
  flat["torch_dtype"] = "bfloat16";
  return flat;
}

void expect_passes(const std::string& folder, const std::string& what) {
  const auto report = verify_case(folder, {.variations = false}, testing::cpu());
  ASSERT_TRUE(report.ok()) << what << ": " << report.error().message;
  EXPECT_EQ(report->failed(), 0) << what;
  EXPECT_GE(report->passed(), 20) << what;
}

TEST(PaddleOcr, EverySpellingGivesTheReferenceNumbers) {
  const TestTensors base = testing::read_tensors(golden() + "/model.safetensors");
  const json::Object nested = golden_config();
  json::Object no_sections = flat_config();
  no_sections.erase("rope_scaling");
  using Rewrite = std::function<void(TestTensors&)>;
  const Rewrite native = [](TestTensors& t) {
    replace_head(t, "model.", "model.language_model.");
    replace_head(t, "visual.", "model.visual.");
    replace_head(t, "mlp_AR.", "model.projector.");
  };
  const Rewrite unused = [](TestTensors& t) {
    t["visual.vision_model.embeddings.packing_position_embedding.weight"] = testing::random_tensor({9, 144}, 1, 1.0f);
    t["visual.vision_model.head.probe"] = testing::random_tensor({1, 1, 144}, 2, 1.0f);
    t["visual.vision_model.head.mlp.fc1.weight"] = testing::random_tensor({304, 144}, 3, 1.0f);
  };
  struct Spelling {
    const char* name;
    const json::Object* config;
    Rewrite rewrite;
  };
  const json::Object flat = flat_config();
  for (const Spelling& s :
       {Spelling{"flat configuration", &flat, nullptr}, Spelling{"without sections", &no_sections, nullptr},
        Spelling{"native export", &nested, native}, Spelling{"unused tensors", &nested, unused}}) {
    TempFolder folder;
    TestTensors t = base;
    if (s.rewrite) s.rewrite(t);
    copy_case(folder, *s.config, t);
    expect_passes(folder.path(), s.name);
  }
}

TEST(PaddleOcr, EachTensorBelongsToOnePart) {
  const TestTensors base = testing::read_tensors(golden() + "/model.safetensors");
  const auto load = [&](const char* extra, const char* missing, std::string& tower, std::string& decoder) {
    TempFolder folder;
    TestTensors t = base;
    if (*extra != 0) t[extra] = testing::random_tensor({8}, 1, 1.0f);
    if (*missing != 0) t.erase(missing);
    copy_case(folder, golden_config(), t);
    model::LoadOptions o;
    o.path = folder.path();
    const auto a = load_tower(o, testing::cpu());
    const auto b = model::load_model(o, testing::cpu());
    tower = a.ok() ? "" : a.error().message, decoder = b.ok() ? "" : b.error().message;
  };
  std::string tower, decoder;
  load("visual.vision_model.encoder.layers.2.layer_norm1.weight", "mlp_AR.linear_2.bias", tower, decoder);
  EXPECT_EQ(decoder, "");
  for (const char* part : {"1 tensors missing, 1 unexpected", "missing mlp_AR.linear_2.bias",
                           "unexpected visual.vision_model.encoder.layers.2.layer_norm1.weight"})
    EXPECT_NE(tower.find(part), std::string::npos) << part << " in " << tower;
  load("visions.layers.0.weight", "", tower, decoder);
  EXPECT_EQ(tower, "");
  EXPECT_NE(decoder.find("unexpected visions.layers.0.weight"), std::string::npos) << decoder;
  load("model.layers.0.self_attn.q_norm.weight", "model.norm.weight", tower, decoder);
  EXPECT_EQ(tower, "");
  EXPECT_NE(decoder.find("missing model.norm.weight"), std::string::npos) << decoder;
}

// Shapes of one row, one column, the smallest picture and a video's frames.
const std::vector<Grid> kGrids = {{1, 4, 6}, {1, 2, 2}, {1, 2, 40}, {3, 6, 2}, {1, 30, 2}, {1, 12, 14}};

TEST(PaddleOcr, ItemsDoNotDependOnTheirNeighbours) {
  for (const DType type : {DType::kF32, DType::kBF16}) {
    model::LoadOptions o;
    o.path = golden();
    o.activation = type;
    const auto tower = load_tower(o, testing::cpu());
    ASSERT_TRUE(tower.ok()) << tower.error().message;
    const int values = (*tower)->info().patch_values;
    int64_t rows = 0;
    for (const Grid& g : kGrids) rows += g.rows();
    const std::vector<float> patches = testing::random_patches(rows, values, 7);
    const auto packed = testing::encode(**tower, kGrids, patches);
    ASSERT_TRUE(packed.ok()) << packed.error().message;
    size_t patch = 0, row = 0;
    for (const Grid& g : kGrids) {
      const auto n = static_cast<size_t>(g.rows() * values);
      const auto one = testing::encode(**tower, {&g, 1}, {patches.data() + patch, n});
      ASSERT_TRUE(one.ok());
      ASSERT_EQ(one->rows.size(), static_cast<size_t>((*tower)->tokens(g) * 128));
      for (size_t i = 0; i < one->rows.size(); ++i) ASSERT_EQ(one->rows[i], packed->rows[row + i]) << g.h << "x" << g.w;
      patch += n, row += one->rows.size();
    }
    // Frames of a video are pictures of their own.
    const Grid video{3, 6, 2}, frame{1, 6, 2};
    const auto whole = testing::encode(**tower, {&video, 1}, {patches.data(), static_cast<size_t>(36 * values)});
    for (size_t f = 0; f < 3; ++f) {
      const auto part = static_cast<size_t>(12 * values);
      const auto one = testing::encode(**tower, {&frame, 1}, {patches.data() + f * part, part});
      ASSERT_TRUE(one.ok() && whole.ok());
      for (size_t i = 0; i < one->rows.size(); ++i) ASSERT_EQ(one->rows[i], whole->rows[f * one->rows.size() + i]);
    }
  }
}

TEST(PaddleOcr, PositionTable) {
  // The grid of the table itself reads each entry alone.
  for (int i = 0; i < 81; ++i) {
    const Neighbours n = resampled(9, 9, 9, i / 9, i % 9);
    float sum = 0.0f;
    for (size_t j = 0; j < 4; ++j) sum += n.row[j] == i ? n.weight[j] : 0.0f;
    EXPECT_FLOAT_EQ(sum, 1.0f) << i;
  }
  // Any other grid: a plane given at the entries' centres comes back between the outermost of them.
  for (const auto& [h, w] : {std::pair{2, 2}, std::pair{4, 30}, std::pair{64, 10}, std::pair{27, 100}}) {
    for (int y = 0; y < h; ++y) {
      for (int x = 0; x < w; ++x) {
        const Neighbours n = resampled(27, h, w, y, x);
        double row = 0, column = 0, sum = 0;
        for (size_t j = 0; j < 4; ++j) {
          ASSERT_TRUE(n.row[j] >= 0 && n.row[j] < 27 * 27 && n.weight[j] >= 0.0f);
          row += static_cast<double>(n.weight[j]) * (n.row[j] / 27);
          column += static_cast<double>(n.weight[j]) * (n.row[j] % 27);
          sum += static_cast<double>(n.weight[j]);
        }
        const auto want = [](int i, int size) { return std::clamp((i + 0.5) * 27.0 / size - 0.5, 0.0, 26.0); };
        EXPECT_NEAR(sum, 1.0, 1e-6);
        EXPECT_NEAR(row, want(y, h), 1e-4);
        EXPECT_NEAR(column, want(x, w), 1e-4);
      }
    }
  }
}

// PaddleOCR-VL-0.9B (models-ernie-paddleocr.md 1.1, 1.2).
json::Object released_config() {
  return json::parse(R"({"architectures":["PaddleOCRVLForConditionalGeneration"],"hidden_size":1024,
      "intermediate_size":3072,"num_hidden_layers":18,"num_attention_heads":16,"num_key_value_heads":2,"head_dim":128,
      "vocab_size":103424,"max_position_embeddings":131072,"rms_norm_eps":1e-5,"tie_word_embeddings":false,
      "rope_theta":500000,"rope_scaling":{"mrope_section":[16,24,24],"rope_type":"default","type":"default"},
      "vision_config":{"hidden_size":1152,"intermediate_size":4304,"num_hidden_layers":27,"num_attention_heads":16,
        "num_channels":3,"image_size":384,"patch_size":14,"hidden_act":"gelu_pytorch_tanh","layer_norm_eps":1e-6,
        "spatial_merge_size":2}})")
      .value()
      .get_object();
}

TEST(PaddleOcr, TheReleasedModelsNumbers) {
  TempFolder folder;
  testing::write_file(folder.path() + "/config.json", json::dump(released_config()));
  model::LoadOptions o;
  o.path = folder.path();
  o.dummy = true;
  const auto s = summarize_tower(o);
  ASSERT_TRUE(s.ok()) << s.error().message;
  const int64_t d = 1152, wide = 4304, merged = 4 * d, text = 1024;
  const int64_t block = 4 * (d * d + d) + d * wide + wide + wide * d + d + 4 * d;
  const int64_t want =
      d * 588 + d + 27 * 27 * d + 27 * block + 2 * d + 2 * d + merged * merged + merged + merged * text + text;
  EXPECT_EQ(s->info.parameters, want);
  EXPECT_EQ(s->info.hidden, 1024);
  EXPECT_EQ(s->info.patch_values, 588);
  ASSERT_EQ(s->weight_bytes.size(), 2u);
  EXPECT_NEAR(static_cast<double>(s->weight_bytes[0].second), 2.0 * static_cast<double>(want), 0.01 * 2e9);
  const auto text_side = model::summarize_model(o);
  ASSERT_TRUE(text_side.ok());
  const double all = static_cast<double>(want + text_side->parameters);
  EXPECT_GT(all, 0.90e9);
  EXPECT_LT(all, 0.97e9);
  // A page of 5,000 patches: tens of megabytes for the rows, and the wide middle of the MLP only in parts.
  const auto stream = testing::cpu().stream();
  TempFolder small;
  json::Object config = released_config();
  config["vision_config"].get_object()["num_hidden_layers"] = 1;
  testing::write_file(small.path() + "/config.json", json::dump(config));
  o.path = small.path();
  const auto tower = load_tower(o, testing::cpu());
  ASSERT_TRUE(tower.ok()) << tower.error().message;
  EXPECT_LT((*tower)->workspace_bytes(5000, 1, stream), size_t{220} << 20);
}

TEST(PaddleOcr, BadConfigurations) {
  const auto fails = [](const std::function<void(json::Object&)>& change, const char* part) {
    TempFolder folder;
    json::Object config = released_config();
    change(config);
    testing::write_file(folder.path() + "/config.json", json::dump(config));
    model::LoadOptions o;
    o.path = folder.path();
    o.dummy = true;
    const auto s = summarize_tower(o);
    ASSERT_FALSE(s.ok()) << part;
    EXPECT_NE(s.error().message.find(part), std::string::npos) << s.error().message;
  };
  const auto vision = [](json::Object& c) -> json::Object& { return c["vision_config"].get_object(); };
  fails([](json::Object& c) { c.erase("vision_config"); }, "vision_config is missing");
  fails([&](json::Object& c) { vision(c)["num_attention_heads"] = 7; }, "multiple of 8");
  fails([&](json::Object& c) { vision(c)["hidden_act"] = "relu"; }, "relu is not supported");
  fails([&](json::Object& c) { vision(c)["num_hidden_layers"] = -1; }, "num_hidden_layers");
  fails([&](json::Object& c) { vision(c)["image_size"] = 10; }, "smaller than a patch");
  fails([&](json::Object& c) { vision(c)["hidden_size"] = 1ll << 40; }, "hidden_size");
}

TEST(PaddleOcr, RefusesWhatDoesNotFitTheGrids) {
  model::LoadOptions o;
  o.path = golden();
  const auto tower = load_tower(o, testing::cpu());
  ASSERT_TRUE(tower.ok());
  const Grid grid{1, 4, 4};
  TowerIndex index;
  (*tower)->index({&grid, 1}, index);
  std::vector<uint16_t> patches(16 * 588), out(4 * 128);
  std::vector<char> space((*tower)->workspace_bytes(16, 1, testing::cpu().stream()) + 64);
  const auto encode = [&](int64_t rows, int64_t values, size_t ints, size_t floats, int64_t tokens) {
    device::Arena arena(space.data(), space.size());
    return (*tower)->encode({{&grid, 1},
                             tensor2(patches.data(), DType::kBF16, rows, values),
                             tensor1(index.ints.data(), DType::kI32, static_cast<int64_t>(ints)),
                             tensor1(index.floats.data(), DType::kF32, static_cast<int64_t>(floats)),
                             tensor2(out.data(), DType::kBF16, tokens, 128),
                             testing::cpu().stream(),
                             arena});
  };
  const size_t ints = index.ints.size(), floats = index.floats.size();
  EXPECT_TRUE(encode(16, 588, ints, floats, 4).ok());
  EXPECT_FALSE(encode(12, 588, ints, floats, 4).ok());
  EXPECT_FALSE(encode(16, 580, ints, floats, 4).ok());
  EXPECT_FALSE(encode(16, 588, ints - 1, floats, 4).ok());
  EXPECT_FALSE(encode(16, 588, ints, floats - 1, 4).ok());
  EXPECT_FALSE(encode(16, 588, ints, floats, 3).ok());
}

}  // namespace
}  // namespace tern::vision
