// Models cut over several ranks: reference cases as on one rank, with weights in every format, and results that do not
// depend on chunks, block tables or neighbours; what cannot be shared is said in one line.
#include "model/ranks.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "model/arch/registry.h"
#include "model/tests/support.h"
#include "model/verify/golden_case.h"
#include "model/verify/ranked_model.h"
#include "model/verify/verify_case.h"

namespace tern::model {
namespace {

namespace fs = std::filesystem;

DecoderSpec spec_of(const std::string& folder) { return *read_spec(*read_config(folder, "config.json", {})); }

std::vector<std::string> cases() {
  std::vector<std::string> out;
  for (const char* set : {"golden", "golden_s"}) {
    for (const auto& e : fs::directory_iterator(fs::path(TERN_SOURCE_DIR) / "tests/data" / set)) {
      const auto golden = read_golden_case(e.path().string());
      if (golden.ok() && golden->kind == "text") out.push_back(std::string(set) + "/" + e.path().filename().string());
    }
  }
  std::sort(out.begin(), out.end());
  return out;
}

device::Device& cpu() {
  static auto device = device::make_cpu_device({.threads = 1, .pin = false});
  return **device;
}

bool can(const DecoderSpec& spec, bool expert_parallel, int ranks) {
  const std::vector<int> counts = rank_counts(spec, expert_parallel, ranks);
  return counts.back() == ranks;
}

void expect_passes(const std::string& folder, const VerifyOptions& options) {
  const auto report = verify_case(folder, options, cpu());
  ASSERT_TRUE(report.ok()) << report.error().message;
  for (const auto& c : report->tensors)
    EXPECT_TRUE(c.ok) << c.name << ": relative " << c.relative << ", rms " << c.rms << ", tolerance " << c.tolerance;
  for (const auto& c : report->prompts) EXPECT_EQ(c.matched, c.checked) << c.name;
  for (const auto& c : report->statements) EXPECT_TRUE(c.ok) << c.name << ": " << c.detail;
  EXPECT_GE(report->tensors.size(), 6u);
}

// wint8, wint4 by row and in groups of 128, e4m3 by block.
std::vector<json::Value> formats() {
  std::vector<json::Value> out;
  for (const char* text :
       {R"("wint8")", R"("wint4")", R"({"quantization": "wint4", "group_size": 128})", R"("block_wise_fp8")"})
    out.push_back(*json::parse(text));
  return out;
}

// The same results, but for the order in which parts of a sum are added.
void expect_close(const std::vector<float>& got, const std::vector<float>& want) {
  ASSERT_EQ(got.size(), want.size());
  float largest = 0;
  for (const float v : want) largest = std::max(largest, std::fabs(v));
  size_t wrong = 0;
  for (size_t i = 0; i < want.size(); ++i) wrong += !(std::fabs(got[i] - want[i]) <= 2e-5f * largest);  // NaN, too
  EXPECT_EQ(wrong, 0u) << "of " << want.size() << " values";
}

class RankedGolden : public ::testing::TestWithParam<std::string> {};

TEST_P(RankedGolden, PassesOverRanks) {
  const std::string folder = std::string(TERN_SOURCE_DIR) + "/tests/data/" + GetParam();
  const DecoderSpec spec = spec_of(folder);
  if (rank_counts(spec, false, 4).size() == 1) GTEST_SKIP() << "no two ranks can share its heads";
  for (const int ranks : {2, 4}) {
    if (!can(spec, false, ranks)) continue;
    SCOPED_TRACE(ranks);
    expect_passes(folder, {.activation = DType::kF32, .ranks = ranks});
  }
}

std::string test_name(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  for (char& c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(Cases, RankedGolden, ::testing::ValuesIn(cases()), test_name);

// Four ranks are what shows a wrong order of sums.
TEST(RankedModel, HowManyCasesCanBeCut) {
  int two = 0, four = 0;
  for (const std::string& name : cases()) {
    const DecoderSpec spec = spec_of(std::string(TERN_SOURCE_DIR) + "/tests/data/" + name);
    two += can(spec, false, 2), four += can(spec, false, 4);
  }
  EXPECT_GE(two, 28);
  EXPECT_GE(four, 2);
}

TEST(RankedModel, WeightsAsCodes) {
  for (const char* name : {"qwen3", "ernie4_5", "qwen3_moe", "deepseek_v3"}) {
    for (const json::Value& format : formats()) {
      SCOPED_TRACE(fmt::format("{} {}", name, json::dump(format)));
      VerifyOptions options{.activation = DType::kF32, .ranks = 2};
      options.quantization = format;
      expect_passes(testing::golden(name), options);
    }
  }
}

TEST(RankedModel, BFloat16) {
  for (const char* name : {"qwen3", "llama3"}) {
    expect_passes(testing::golden(name),
                  {.activation = DType::kBF16, .ranks = 2, .tolerance = VerifyTolerance::of(DType::kBF16)});
  }
}

// Every architecture, with heads that four ranks share and KV heads that neighbours hold together.
TEST(RankedModel, EveryArchitectureIsAsOnOneRank) {
  for (const auto& [name, config] : testing::small_configs(4, 2)) {
    SCOPED_TRACE(name);
    testing::TempFolder folder;
    testing::write_random_model(folder.path(), config);
    LoadOptions o;
    o.path = folder.path(), o.activation = DType::kF32;
    const auto whole = load_model(o, cpu());
    ASSERT_TRUE(whole.ok()) << whole.error().message;
    const std::vector<int32_t> ids = testing::some_ids(131, (*whole)->info().vocab_size);
    const std::vector<float> want = testing::logits_of(**whole, ids);
    for (const int ranks : {2, 4}) {
      o.shard.ranks = ranks;
      const auto cut = RankedModel::load(o, cpu());
      ASSERT_TRUE(cut.ok()) << cut.error().message;
      const std::vector<float> got = testing::logits_of(**cut, ids);
      SCOPED_TRACE(fmt::format("{} ranks", ranks));
      expect_close(got, want);
      EXPECT_EQ(got, testing::logits_of(**cut, ids));  // and the same bits again
    }
  }
}

// Experts dealt whole instead of cut: the same results, in every precision of the experts.
TEST(RankedModel, ExpertsDealtWhole) {
  int models = 0;
  for (const auto& [name, config] : testing::small_configs(4, 2)) {
    SCOPED_TRACE(name);
    testing::TempFolder folder;
    testing::write_random_model(folder.path(), config);
    const DecoderSpec spec = spec_of(folder.path());
    if (spec.moe.experts == 0) continue;
    ++models;
    for (const json::Value& format : {json::Value(nullptr), json::Value("wint8"), json::Value("block_wise_fp8")}) {
      LoadOptions o;
      o.path = folder.path(), o.activation = DType::kF32;
      o.quantization = *read_quantization(format, spec.architecture);
      const auto whole = load_model(o, cpu());
      ASSERT_TRUE(whole.ok()) << whole.error().message;
      const std::vector<int32_t> ids = testing::some_ids(37, (*whole)->info().vocab_size);
      const std::vector<float> want = testing::logits_of(**whole, ids);
      for (const int ranks : {2, 4}) {
        if (!can(spec, true, ranks)) continue;
        o.shard.ranks = ranks, o.shard.expert_parallel = true;
        const auto cut = RankedModel::load(o, cpu());
        ASSERT_TRUE(cut.ok()) << cut.error().message;
        const std::vector<float> got = testing::logits_of(**cut, ids);
        SCOPED_TRACE(fmt::format("{} ranks {}", ranks, json::dump(format)));
        expect_close(got, want);
      }
      o.shard = {};
    }
  }
  EXPECT_GE(models, 6);
}

TEST(RankedModel, CasesWithExpertsDealtWhole) {
  for (const char* name : {"qwen3_moe", "qwen2_moe", "mixtral", "deepseek_v3", "glm4_moe", "ernie4_5_moe"}) {
    SCOPED_TRACE(name);
    ASSERT_TRUE(can(spec_of(testing::golden(name)), true, 2));
    expect_passes(testing::golden(name), {.activation = DType::kF32, .ranks = 2, .expert_parallel = true});
  }
}

// Experts dealt to the ranks of two engines, which run together or beside an idle one: the same results, and the same
// bits in any company.
TEST(RankedModel, ExpertsOfTwoEngines) {
  int models = 0, of_two = 0;
  for (const auto& [name, config] : testing::small_configs(4, 2)) {
    SCOPED_TRACE(name);
    testing::TempFolder folder;
    testing::write_random_model(folder.path(), config);
    const DecoderSpec spec = spec_of(folder.path());
    if (spec.moe.experts == 0) continue;
    for (const json::Value& format : {json::Value(nullptr), json::Value("wint8")}) {
      LoadOptions o;
      o.path = folder.path(), o.activation = DType::kF32;
      o.quantization = *read_quantization(format, spec.architecture);
      const auto whole = load_model(o, cpu());
      ASSERT_TRUE(whole.ok()) << whole.error().message;
      const std::vector<int32_t> ids = testing::some_ids(37, (*whole)->info().vocab_size);
      const std::vector<float> want = testing::logits_of(**whole, ids);
      for (const int ranks : {1, 2}) {
        if (rank_counts(spec, true, ranks, 2).back() != ranks) continue;
        ++(ranks == 1 ? models : of_two);
        o.shard = {0, ranks, true, 0, 2};
        std::vector<float> beside_others;
        for (const bool idle : {false, true}) {
          const auto cut = RankedModel::load(o, cpu(), idle);
          ASSERT_TRUE(cut.ok()) << cut.error().message;
          const std::vector<float> got = testing::logits_of(**cut, ids);
          SCOPED_TRACE(fmt::format("{} ranks {}", ranks, json::dump(format)));
          expect_close(got, want);
          if (idle) {
            EXPECT_EQ(got, beside_others);
          } else {
            beside_others = got;
          }
        }
      }
    }
  }
  EXPECT_GE(models, 12);
  EXPECT_GE(of_two, 8);
}

TEST(RankedModel, CasesWithExpertsOfTwoEngines) {
  int of_two = 0;
  for (const char* name : {"qwen3_moe", "qwen2_moe", "mixtral", "deepseek_v3", "glm4_moe", "ernie4_5_moe"}) {
    SCOPED_TRACE(name);
    const DecoderSpec spec = spec_of(testing::golden(name));
    for (const int ranks : {1, 2}) {
      const auto counts = rank_counts(spec, true, ranks, 2);
      if (counts.empty() || counts.back() != ranks) continue;
      of_two += ranks == 2;
      VerifyOptions o{.activation = DType::kF32, .ranks = ranks, .expert_parallel = true, .engines = 2};
      o.variations = ranks == 1;
      expect_passes(testing::golden(name), o);
      o.others_idle = true, o.variations = false;
      expect_passes(testing::golden(name), o);
    }
  }
  EXPECT_GE(of_two, 1);
}

// Widths that no block or group of scales divides.
TEST(RankedModel, OddWidthsInEveryFormat) {
  for (const int width : {448, 192}) {
    json::Object config = testing::small_config("Qwen3ForCausalLM", 4, 2);
    config["intermediate_size"] = width;
    testing::TempFolder folder;
    testing::write_random_model(folder.path(), config);
    for (const json::Value& format : formats()) {
      SCOPED_TRACE(fmt::format("{} {}", width, json::dump(format)));
      LoadOptions o;
      o.path = folder.path(), o.activation = DType::kF32;
      o.quantization = *read_quantization(format, "Qwen3ForCausalLM");
      const auto whole = load_model(o, cpu());
      ASSERT_TRUE(whole.ok()) << whole.error().message;
      const std::vector<int32_t> ids = testing::some_ids(19, (*whole)->info().vocab_size);
      const std::vector<float> want = testing::logits_of(**whole, ids);
      for (const int ranks : {2, 4}) {
        o.shard.ranks = ranks;
        const auto cut = RankedModel::load(o, cpu());
        ASSERT_TRUE(cut.ok()) << cut.error().message;
        const std::vector<float> got = testing::logits_of(**cut, ids);
        SCOPED_TRACE(fmt::format("{} ranks", ranks));
        expect_close(got, want);
      }
    }
  }
}

TEST(Ranks, NumbersThatWork) {
  DecoderSpec s;
  s.layers = 1, s.vocab_size = 1000, s.intermediate = 2560, s.moe_layer = {kDenseLayer};
  s.attention.heads = 20, s.attention.kv_heads = 4;
  EXPECT_EQ(rank_counts(s, false, 8), (std::vector<int>{1, 2, 4}));
  const Status eight = check_ranks(s, false, 8);
  ASSERT_FALSE(eight.ok());
  EXPECT_EQ(eight.error().message,
            "8 ranks cannot share 20 heads and 4 KV heads evenly; these numbers of ranks can: 1, 2, 4");
  EXPECT_EQ(eight.error().param, "tensor-parallel-size");
  EXPECT_TRUE(check_ranks(s, false, 4).ok());
  s.attention.heads = 32;
  EXPECT_EQ(rank_counts(s, false, 8), (std::vector<int>{1, 2, 4, 8}));  // KV heads are copied
  s.intermediate = 194;
  EXPECT_EQ(check_ranks(s, false, 4).error().message,
            "4 ranks cannot share an MLP of width 194 evenly; these numbers of ranks can: 1, 2");
  s.moe_layer = {kFirstBank};
  s.moe.experts = 6, s.moe.intermediate = 1408;
  EXPECT_EQ(rank_counts(s, false, 8), (std::vector<int>{1, 2, 4, 8}));
  EXPECT_EQ(rank_counts(s, true, 8), (std::vector<int>{1, 2}));
  EXPECT_EQ(check_ranks(s, true, 4).error().message,
            "4 ranks cannot share 6 experts evenly; these numbers of ranks can: 1, 2");
  EXPECT_EQ(rank_counts(s, true, 8, 2), (std::vector<int>{1}));
  EXPECT_TRUE(check_ranks(s, true, 1, 2).ok());
  const Status of_engines = check_ranks(s, true, 2, 2);
  ASSERT_FALSE(of_engines.ok());
  EXPECT_EQ(of_engines.error().message,
            "2 engines of 2 ranks cannot share 6 experts evenly; engines of so many ranks can: 1");
  EXPECT_EQ(of_engines.error().param, "data-parallel-size");
  EXPECT_EQ(check_ranks(s, true, 1, 4).error().message,
            "4 engines of 1 ranks cannot share 6 experts evenly; no number of ranks in an engine can");
  EXPECT_FALSE(check_ranks(s, true, 2, 64).ok());
  s.vocab_size = 5;
  EXPECT_EQ(rank_counts(s, false, 8), (std::vector<int>{1, 2}));  // four would leave the last one none
}

TEST(Ranks, LoadingSaysItBeforeItReads) {
  LoadOptions o;
  o.path = testing::golden("qwen3");
  o.shard.ranks = 3;
  const auto model = load_model(o, cpu());
  ASSERT_FALSE(model.ok());
  EXPECT_NE(model.error().message.find("these numbers of ranks can: 1, 2"), std::string::npos) << model.error().message;
}

}  // namespace
}  // namespace tern::model
