// The reference cases through the engine: alone, among others, in chunks, with prefix hits, preempted. Answers of
// models with ordinary attention are equal to the last bit; those of MLA models say the same tokens.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <sstream>

#include "engine/tests/engine_harness.h"
#include "model/loader.h"

namespace tern::engine {
namespace {

struct Case {
  std::unique_ptr<device::Device> device;
  std::vector<std::unique_ptr<model::Model>> ranks;
  std::map<std::string, std::vector<int32_t>> prompts, greedy;
  std::map<std::string, std::vector<float>> margins;

  Harness start(const EngineConfig& config, int engines = 1) const {
    if (ranks.size() == 1 && engines == 1) return Harness(config, *ranks[0]);
    std::vector<const model::Model*> parts;
    for (const auto& part : ranks) parts.push_back(part.get());
    return Harness(config, parts, engines);
  }
};

Case load(const std::string& name, DType activation, int ranks = 1, const std::string& cache = "") {
  Case c;
  c.device = std::move(device::make_cpu_device({1, false})).value();
  const std::string folder = std::string(TERN_SOURCE_DIR) + "/tests/data/golden/" + name;
  model::LoadOptions options;
  options.path = folder;
  options.activation = activation;
  options.quantization.cache = cache;
  options.shard.ranks = ranks;
  for (options.shard.rank = 0; options.shard.rank < ranks; ++options.shard.rank) {
    auto model = model::load_model(options, *c.device);
    EXPECT_TRUE(model.ok()) << model.error().message;
    if (!model.ok()) abort();
    c.ranks.push_back(std::move(model).value());
  }
  std::ifstream in(folder + "/golden.json");
  std::stringstream text;
  text << in.rdbuf();
  auto golden = json::parse(text.str(), {});
  EXPECT_TRUE(golden.ok());
  for (const auto& [key, value] : golden->as_object().at("prompts").as_object()) {
    for (const auto& v : value.as_object().at("input_ids").as_array()) {
      c.prompts[key].push_back(static_cast<int32_t>(v.to_number<int64_t>()));
    }
    for (const auto& v : value.as_object().at("greedy").as_array()) {
      c.greedy[key].push_back(static_cast<int32_t>(v.to_number<int64_t>()));
    }
    for (const auto& v : value.as_object().at("margins").as_array()) c.margins[key].push_back(v.to_number<float>());
  }
  return c;
}

EngineConfig config(int seqs, int budget, int blocks) {
  EngineConfig c;
  c.scheduler.max_num_seqs = seqs;
  c.scheduler.max_num_batched_tokens = budget;
  c.scheduler.max_model_len = 320;
  c.scheduler.prealloc_dec_block_slot_num_threshold = 2;
  c.scheduler.enc_dec_block_num = 1;
  c.num_blocks_override = blocks;
  return c;
}

// Three requests of every prompt: greedy, sampled, and longer; with log-probs.
std::vector<Request> requests(const Case& c) {
  std::vector<Request> list;
  RequestId id = 1;
  for (const auto& [key, prompt] : c.prompts) {
    for (int kind = 0; kind < 3; ++kind) {
      Request r = Harness::request(id++, prompt, 20 + 60 * kind);
      r.ignore_eos = true;
      r.sampling.logprobs = 3;
      if (kind > 0) r.sampling.temperature = 1.0f, r.sampling.top_p = 0.95f, r.sampling.seed = r.id * 77;
      list.push_back(std::move(r));
    }
  }
  return list;
}

std::map<RequestId, Answer> run(const Case& c, const EngineConfig& config, EngineStats* stats, bool one_by_one,
                                int engines = 1) {
  Harness h = c.start(config, engines);
  size_t sent = 0;
  for (Request& r : requests(c)) {
    EXPECT_TRUE(h->submit(std::move(r)).ok());
    ++sent;
    if (one_by_one) h.read(sent, 60);
  }
  h.read(sent, 60);
  *stats = h->stats();
  return std::move(h.answers);
}

void expect_equal(const std::map<RequestId, Answer>& want, std::map<RequestId, Answer>& got, bool bits) {
  for (const auto& [id, w] : want) {
    const Answer& g = got[id];
    EXPECT_EQ(w.ids, g.ids) << "request " << id;
    for (size_t i = 0; bits && i < w.tokens.size() && i < g.tokens.size(); ++i) {
      for (size_t k = 0; k < w.tokens[i].logprobs.size(); ++k) {
        ASSERT_EQ(w.tokens[i].logprobs[k].id, g.tokens[i].logprobs[k].id) << "request " << id << " token " << i;
        ASSERT_EQ(w.tokens[i].logprobs[k].logprob, g.tokens[i].logprobs[k].logprob)
            << "request " << id << " token " << i;
      }
    }
  }
}

struct Param {
  const char* name;
  DType activation;
  bool bits = true;
  int ranks = 1;
  const char* cache = "";  // kv_cache_quant_type
};

class RealModel : public testing::TestWithParam<Param> {};

TEST_P(RealModel, AnswersDoNotDependOnTheCompany) {
  const Param p = GetParam();
#ifdef __SANITIZE_THREAD__
  if (std::string(p.name) != "qwen3") GTEST_SKIP() << "one architecture shows the threads; the others take minutes";
#endif
  const std::string cache = p.cache;
  const Case c = load(p.name, p.activation, p.ranks, cache);
  EngineStats stats;
  EngineConfig alone_config = config(1, 512, 40);
  alone_config.scheduler.prefix_caching = false;
  const auto alone = run(c, alone_config, &stats, true);
  if (p.activation == DType::kF32 && cache.empty()) {
    RequestId id = 1;
    for (const auto& [key, greedy] : c.greedy) {
      const auto& ids = alone.at(id).ids;
      // A step whose margin is within rounding may fall either way, and all after it.
      for (size_t i = 0; i < greedy.size() && c.margins.at(key)[i] > 1e-3f; ++i) EXPECT_EQ(ids[i], greedy[i]) << key;
      id += 3;
    }
  }
  auto together = run(c, config(9, 512, 80), &stats, false);
  expect_equal(alone, together, p.bits);
  auto chunks = run(c, config(4, 33, 80), &stats, false);
  expect_equal(alone, chunks, p.bits);
  auto hits = run(c, config(2, 512, 80), &stats, true);
  EXPECT_GT(stats.prefix_hit_tokens, 0u);
  expect_equal(alone, hits, p.bits);
  EngineConfig few = config(8, 100, 9);
  few.scheduler.reserve_output_blocks = 0;
  auto preempted = run(c, few, &stats, false);
  EXPECT_GT(stats.preemptions, 0u);
  expect_equal(alone, preempted, p.bits);
  auto dealt = run(c, config(4, 100, 80), &stats, false, 2);
  expect_equal(alone, dealt, p.bits);
}

INSTANTIATE_TEST_SUITE_P(
    Cases, RealModel,
    testing::Values(Param{"qwen3", DType::kF32}, Param{"qwen3", DType::kBF16}, Param{"ernie4_5_moe", DType::kBF16},
                    Param{"llama3", DType::kBF16}, Param{"mixtral", DType::kF32}, Param{"glm4_moe", DType::kBF16},
                    Param{"deepseek_v3", DType::kF32, false}, Param{"qwen3", DType::kF32, true, 2},
                    Param{"qwen3", DType::kBF16, true, 2}, Param{"ernie4_5_moe", DType::kBF16, true, 2},
                    Param{"glm4_moe", DType::kBF16, true, 2}, Param{"../golden_s/llama_bias", DType::kF32, true, 4},
                    Param{"deepseek_v3", DType::kF32, false, 2}, Param{"qwen3", DType::kBF16, true, 1, "int8"},
                    Param{"qwen3", DType::kF32, true, 2, "float8_e4m3fn"},
                    Param{"ernie4_5_moe", DType::kBF16, true, 1, "float8_e4m3fn"}),
    [](const auto& param) {
      std::string name = fmt::format("{}_{}_{}{}{}", param.param.name, dtype_name(param.param.activation),
                                     param.param.ranks, *param.param.cache != 0 ? "_" : "", param.param.cache);
      for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
      return name;
    });

TEST(RealModelPrompt, LogprobsAddUpInAnyChunks) {
  const Case c = load("qwen3", DType::kF32);
  std::vector<std::vector<TokenLogprob>> want;
  for (int budget : {512, 50}) {
    Harness h = c.start(config(4, budget, 80));
    Request r = Harness::request(1, c.prompts.at("long"), 1);
    r.sampling.prompt_logprobs = 1;
    ASSERT_TRUE(h->submit(r).ok());
    h.read(1);
    const auto& got = h.answers[1].prompt_logprobs;
    ASSERT_EQ(got.size(), r.prompt.size() - 1);
    if (want.empty()) want = got;
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(got[i][0].id, r.prompt[i + 1]);
      EXPECT_LT(got[i][0].logprob, 0);
      EXPECT_EQ(got[i][0].logprob, want[i][0].logprob);
      EXPECT_EQ(got[i][1].id, want[i][1].id);
    }
  }
}

}  // namespace

void expect_no_allocations(Harness& h, std::vector<Request> requests, uint64_t steps);

TEST(Allocations, NoneInASteadyStepOfARealModel) {
  struct Shape {
    const char* name;
    int ranks, engines;
  };
  for (const auto& [name, ranks, engines] :
       {Shape{"qwen3", 1, 1}, {"ernie4_5_moe", 1, 1}, {"deepseek_v3", 1, 1}, {"qwen3", 2, 1}, {"qwen3", 1, 2}}) {
    SCOPED_TRACE(name);
    const Case c = load(name, DType::kBF16, ranks);
    EngineConfig cfg = config(4, 256, 400);
    cfg.scheduler.max_model_len = 2000;
    Harness h = c.start(cfg, engines);
    std::vector<Request> list;
    for (RequestId id = 1; id <= 4; ++id) {
      Request r = Harness::request(id, c.prompts.at("short"), 1500);
      r.ignore_eos = true;
      r.sampling.logprobs = 2;
      list.push_back(std::move(r));
    }
    expect_no_allocations(h, std::move(list), 60);
  }
}

}  // namespace tern::engine
