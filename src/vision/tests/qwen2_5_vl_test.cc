// Qwen2.5-VL: the order of windows, who sees whom, every spelling of weights and configuration, independence of an
// item's rows, and the released model's numbers. The reference case (golden_test.cc) has the values themselves.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <tuple>

#include "model/loader.h"
#include "vision/tests/support.h"
#include "vision/verify/verify_case.h"

namespace tern::vision {
namespace {

namespace fs = std::filesystem;
using testing::TempFolder;
using testing::TestTensors;

std::string golden() { return std::string(TERN_SOURCE_DIR) + "/tests/data/golden/qwen2_5_vl"; }

std::unique_ptr<Tower> load(DType type, const json::Object& overrides = {}) {
  model::LoadOptions o;
  o.path = golden();
  o.activation = type;
  o.overrides = overrides;
  auto tower = load_tower(o, testing::cpu());
  EXPECT_TRUE(tower.ok()) << tower.error().message;
  return tower.ok() ? std::move(*tower) : nullptr;
}

int64_t rows_of(std::span<const Grid> grids) {
  int64_t rows = 0;
  for (const Grid& g : grids) rows += g.rows();
  return rows;
}

// Cells sorted by frame, window and place must be what index() says, with starts where frame or window changes.
TEST(Qwen25Vl, OrderOfWindows) {
  const auto tower = load(DType::kF32);
  // Merged cells: 5 x 7 (windows that end early both ways) in two frames, 8 x 4 (whole windows), 1 x 1, 2 x 9.
  const std::vector<Grid> grids = {{2, 10, 14}, {1, 16, 8}, {1, 2, 2}, {1, 4, 18}};
  TowerIndex index;
  tower->index(grids, index);
  using Cell = std::tuple<int, int, int, int, int, int>;  // frame, window y and x, y, x, block of the call
  std::vector<Cell> cells;
  int frame = 0, block = 0;
  for (const Grid& g : grids)
    for (int t = 0; t < g.t; ++t, ++frame)
      for (int y = 0; y < g.h / 2; ++y)
        for (int x = 0; x < g.w / 2; ++x) cells.emplace_back(frame, y / 4, x / 4, y, x, block++);
  std::sort(cells.begin(), cells.end());
  std::vector<int32_t> none(cells.size() * 4, 0), ys, xs, order, frames{0}, windows{0};
  for (size_t i = 0; i < cells.size(); ++i) {
    const auto& [f, wy, wx, y, x, from] = cells[i];
    order.push_back(from);
    for (int p = 0; p < 4; ++p) ys.push_back(2 * y + p / 2), xs.push_back(2 * x + p % 2);
    const bool last = i + 1 == cells.size();
    const auto next = last ? Cell{-1, -1, -1, -1, -1, -1} : cells[i + 1];
    const auto end = static_cast<int32_t>(4 * (i + 1));
    if (std::get<0>(next) != f) frames.push_back(end);
    if (std::get<0>(next) != f || std::get<1>(next) != wy || std::get<2>(next) != wx) windows.push_back(end);
  }
  std::vector<int32_t> want = none;
  for (const auto* part : {&ys, &xs, &order, &frames, &windows}) want.insert(want.end(), part->begin(), part->end());
  EXPECT_EQ(index.ints, want);
  EXPECT_EQ(frames.size(), 6u);
  EXPECT_EQ(windows.size(), 1u + 2 * 4 + 2 + 1 + 3);
}

// Layers of windows alone keep a change inside its window; a full layer carries it through the frame, not to the next.
TEST(Qwen25Vl, WhoSeesWhom) {
  const Grid grid{2, 16, 16};  // 8 x 8 cells: four windows a frame
  std::vector<float> patches = testing::random_patches(grid.rows(), 384, 11);
  std::vector<float> other = patches;
  other[static_cast<size_t>((grid.rows() / 2 - 1) * 384)] += 1.0f;  // in the last window of the first frame
  const auto changed = [&](const json::Array& full) {
    const auto tower = load(DType::kF32, {{"vision_config", json::Object{{"fullatt_block_indexes", full}}}});
    const auto a = testing::encode(*tower, {&grid, 1}, patches), b = testing::encode(*tower, {&grid, 1}, other);
    EXPECT_TRUE(a.ok() && b.ok());
    std::vector<int> cells;
    for (int i = 0; i < 128; ++i) {
      const auto row = static_cast<std::ptrdiff_t>(128 * i);
      if (!std::equal(a->rows.begin() + row, a->rows.begin() + row + 128, b->rows.begin() + row)) cells.push_back(i);
    }
    return cells;
  };
  std::vector<int> window, whole(64);
  for (int y = 4; y < 8; ++y)
    for (int x = 4; x < 8; ++x) window.push_back(8 * y + x);
  for (int i = 0; i < 64; ++i) whole[static_cast<size_t>(i)] = i;
  EXPECT_EQ(changed({}), window);
  EXPECT_EQ(changed({1}), whole);
}

const std::vector<Grid> kGrids = {{1, 4, 6}, {1, 2, 2}, {1, 2, 40}, {3, 10, 2}, {1, 16, 16}, {1, 12, 14}};

TEST(Qwen25Vl, ItemsDoNotDependOnTheirNeighbours) {
  for (const DType type : {DType::kF32, DType::kBF16}) {
    const auto tower = load(type);
    const auto values = static_cast<size_t>(tower->info().patch_values);
    const std::vector<float> patches = testing::random_patches(rows_of(kGrids), static_cast<int>(values), 7);
    const auto packed = testing::encode(*tower, kGrids, patches);
    ASSERT_TRUE(packed.ok()) << packed.error().message;
    size_t patch = 0, row = 0;
    for (const Grid& g : kGrids) {
      // Frames of a video are pictures of their own.
      const Grid frame{1, g.h, g.w};
      const auto n = static_cast<size_t>(frame.rows()) * values;
      for (int t = 0; t < g.t; ++t, patch += n) {
        const auto one = testing::encode(*tower, {&frame, 1}, {patches.data() + patch, n});
        ASSERT_TRUE(one.ok());
        ASSERT_EQ(one->rows.size(), static_cast<size_t>(tower->tokens(frame) * 128));
        for (size_t i = 0; i < one->rows.size(); ++i) ASSERT_EQ(one->rows[i], packed->rows[row + i]) << g.h << g.w;
        row += one->rows.size();
      }
    }
    EXPECT_EQ(row, packed->rows.size());
  }
}

// The text model's keys at the root, as the released files have them.
json::Object flat_config() {
  json::Object flat = json::parse_file(golden() + "/config.json").value().get_object();
  const json::Object text = flat.at("text_config").get_object();
  flat.erase("text_config");
  for (const auto& [key, value] : text)
    if (key != "model_type" && key != "rope_parameters" && key != "layer_types") flat[key] = value;
  flat["rope_theta"] = 1000000.0;
  flat["rope_scaling"] = json::Object{{"mrope_section", json::Array{8, 12, 12}}, {"type", "mrope"}};
  flat["sliding_window"] = 32768;
  flat["torch_dtype"] = "bfloat16";
  json::Object& vision = flat["vision_config"].get_object();
  vision.erase("rope_parameters");
  vision.erase("in_channels");
  vision["in_chans"] = 3;
  vision["spatial_patch_size"] = 8;
  return flat;
}

TEST(Qwen25Vl, EverySpellingGivesTheReferenceNumbers) {
  const TestTensors base = testing::read_tensors(golden() + "/model.safetensors");
  TestTensors native;
  for (const auto& [name, t] : base) {
    const bool text = name.compare(0, 6, "model.") == 0, tower = name.compare(0, 7, "visual.") == 0;
    native[text ? "model.language_model." + name.substr(6) : tower ? "model." + name : name] = t;
  }
  ASSERT_TRUE(base.contains("visual.merger.mlp.2.bias") && native.contains("model.visual.merger.mlp.2.bias"));
  ASSERT_TRUE(native.contains("model.language_model.norm.weight"));
  const json::Object nested = json::parse_file(golden() + "/config.json").value().get_object(), flat = flat_config();
  struct Spelling {
    const json::Object& config;
    const TestTensors& tensors;
  };
  for (const auto& [config, tensors] : {Spelling{flat, base}, Spelling{nested, native}}) {
    TempFolder folder;
    for (const auto& e : fs::directory_iterator(golden())) {
      const std::string name = e.path().filename().string();
      if (name != "config.json" && name != "model.safetensors") fs::copy(e.path(), folder.path() + "/" + name);
    }
    testing::write_file(folder.path() + "/config.json", json::dump(config));
    testing::write_tensors(folder.path() + "/model.safetensors", tensors);
    const auto report = verify_case(folder.path(), {.variations = false}, testing::cpu());
    ASSERT_TRUE(report.ok()) << report.error().message;
    EXPECT_EQ(report->failed(), 0);
    EXPECT_GE(report->passed(), 20);
  }
}

// Qwen2.5-VL-7B (models-other.md 8.1).
json::Object released_config() {
  return json::parse(R"({"architectures":["Qwen2_5_VLForConditionalGeneration"],"hidden_size":3584,
      "intermediate_size":18944,"num_hidden_layers":28,"num_attention_heads":28,"num_key_value_heads":4,
      "vocab_size":152064,"max_position_embeddings":128000,"rms_norm_eps":1e-6,"tie_word_embeddings":false,
      "rope_theta":1000000.0,"rope_scaling":{"mrope_section":[16,24,24],"type":"mrope"},"use_sliding_window":false,
      "sliding_window":32768,"vision_config":{"depth":32,"hidden_act":"silu","hidden_size":1280,
        "intermediate_size":3420,"num_heads":16,"in_chans":3,"out_hidden_size":3584,"patch_size":14,
        "spatial_merge_size":2,"spatial_patch_size":14,"window_size":112,"fullatt_block_indexes":[7,15,23,31],
        "tokens_per_second":2,"temporal_patch_size":2}})")
      .value()
      .get_object();
}

Expected<TowerSummary> summary_of(const json::Object& config, model::LoadOptions& o, const TempFolder& folder) {
  testing::write_file(folder.path() + "/config.json", json::dump(config));
  o.path = folder.path();
  o.dummy = true;
  return summarize_tower(o);
}

TEST(Qwen25Vl, TheReleasedModelsNumbers) {
  TempFolder folder;
  model::LoadOptions o;
  const auto s = summary_of(released_config(), o, folder);
  ASSERT_TRUE(s.ok()) << s.error().message;
  const int64_t d = 1280, wide = 3420, merged = 4 * d, text = 3584;
  const int64_t block = 4 * (d * d + d) + 2 * (d * wide + wide) + wide * d + d + 2 * d;
  EXPECT_EQ(s->info.parameters, d * 1176 + 32 * block + d + merged * merged + merged + merged * text + text);
  EXPECT_EQ(s->info.hidden, 3584);
  EXPECT_EQ(s->info.patch_values, 1176);
  const auto decoder = model::summarize_model(o);
  ASSERT_TRUE(decoder.ok()) << decoder.error().message;
  EXPECT_EQ(s->info.parameters + decoder->parameters, 8292166656);
}

TEST(Qwen25Vl, BadConfigurations) {
  const auto fails = [](const std::function<void(json::Object&)>& change, const char* part) {
    TempFolder folder;
    model::LoadOptions o;
    json::Object config = released_config();
    change(config);
    const auto s = summary_of(config, o, folder);
    ASSERT_FALSE(s.ok()) << part;
    EXPECT_NE(s.error().message.find(part), std::string::npos) << s.error().message;
  };
  const auto set = [](const char* key, json::Value value) {
    return [key, value](json::Object& c) { c["vision_config"].get_object()[key] = value; };
  };
  fails([](json::Object& c) { c.erase("vision_config"); }, "vision_config is missing");
  fails([](json::Object& c) { c["vision_config"].get_object().erase("fullatt_block_indexes"); }, "is missing");
  fails([](json::Object& c) { c["vision_config"].get_object().erase("window_size"); }, "window_size");
  fails(set("fullatt_block_indexes", json::Array{7, 32}), "fullatt_block_indexes");
  fails(set("fullatt_block_indexes", json::Array{-1}), "fullatt_block_indexes");
  fails(set("window_size", 27), "smaller than a merged patch");
  fails(set("num_heads", 7), "multiple of 8");
  fails(set("hidden_act", "gelu"), "gelu is not supported");
  fails(set("depth", 0), "depth");
  fails(set("hidden_size", int64_t{1} << 40), "hidden_size");
  fails(set("out_hidden_size", 2048), "out_hidden_size");
  fails(set("patch_size", 0), "patch_size");
  fails(set("spatial_merge_size", 0), "spatial_merge_size");
  // The text side has its own complaint.
  TempFolder folder;
  model::LoadOptions o;
  json::Object config = released_config();
  config.erase("rope_scaling");
  ASSERT_TRUE(summary_of(config, o, folder).ok());
  const auto decoder = model::summarize_model(o);
  ASSERT_FALSE(decoder.ok());
  EXPECT_NE(decoder.error().message.find("mrope_section is missing"), std::string::npos) << decoder.error().message;
}

TEST(Qwen25Vl, RefusesWhatDoesNotFitTheGrids) {
  const auto tower = load(DType::kBF16);
  const Grid grid{1, 4, 4};
  TowerIndex index;
  tower->index({&grid, 1}, index);
  std::vector<uint16_t> patches(16 * 384), out(4 * 128);
  std::vector<char> space(tower->workspace_bytes(16, 1, testing::cpu().stream()) + 64);
  const auto encode = [&](const Grid& g, int64_t rows, int64_t values, size_t ints, int64_t tokens) {
    device::Arena arena(space.data(), space.size());
    return tower->encode({.grids = {&g, 1},
                          .patches = tensor2(patches.data(), DType::kBF16, rows, values),
                          .ints = tensor1(index.ints.data(), DType::kI32, static_cast<int64_t>(ints)),
                          .floats = {},
                          .out = tensor2(out.data(), DType::kBF16, tokens, 128),
                          .stream = testing::cpu().stream(),
                          .workspace = arena});
  };
  const size_t ints = index.ints.size();
  EXPECT_TRUE(encode(grid, 16, 384, ints, 4).ok());
  EXPECT_FALSE(encode(grid, 12, 384, ints, 4).ok());
  EXPECT_FALSE(encode(grid, 16, 380, ints, 4).ok());
  EXPECT_FALSE(encode(grid, 16, 384, ints - 1, 4).ok());
  EXPECT_FALSE(encode(grid, 16, 384, ints, 3).ok());
  EXPECT_FALSE(encode({1, 3, 4}, 12, 384, ints, 3).ok());
}

}  // namespace
}  // namespace tern::vision
