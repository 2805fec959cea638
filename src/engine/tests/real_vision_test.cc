// The picture cases through the engine: greedy tokens of the reference, and the same bits for every chunk size and
// company, after prefix hits, after preemption, with rows of the encoder cache.
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/tests/engine_harness.h"
#include "model/config/config_reader.h"
#include "model/verify/golden_case.h"
#include "vision/verify/case_prompt.h"

namespace tern::engine {
namespace {

struct Case {
  std::unique_ptr<device::Device> device;
  std::unique_ptr<model::Model> model;
  std::unique_ptr<vision::Tower> tower;
  model::GoldenCase golden;
  std::vector<Request> prompts;  // as golden.prompts
};

// Units that the engine handles: pictures as they are, a video in pairs of frames.
void add_items(const vision::Prompt& p, const vision::Tower& tower, uint64_t key, Request& r) {
  const vision::TowerInfo& info = tower.info();
  auto bytes = std::make_shared<RawBytes>();
  const auto append = [&](const auto& values) {
    const auto* data = reinterpret_cast<const std::byte*>(values.data());
    bytes->assign(data, data + values.size() * sizeof(values[0]));
  };
  info.patch_type == DType::kBF16 ? append(p.pictures.patches16) : append(p.pictures.patches);
  size_t offset = 0, at = 0;
  for (const vision::Grid& grid : p.pictures.grids) {
    for (int t = 0; t < grid.t; t += 2) {
      MediaItem m;
      m.kind = grid.t > 1 ? MediaKind::kVideo : MediaKind::kImage;
      m.t = std::min(2, grid.t - t), m.h = grid.h, m.w = grid.w;
      const vision::Grid unit{m.t, m.h, m.w};
      while (p.layout.picture_rows[at] < 0) ++at;
      m.begin = static_cast<int32_t>(at);
      at += static_cast<size_t>(tower.tokens(unit));
      m.end = static_cast<int32_t>(at);
      m.key[0] = key, m.key[1] = offset + 1;
      m.patches = bytes, m.offset = offset;
      m.bytes = static_cast<size_t>(unit.rows() * info.patch_values) * dtype_bytes(info.patch_type);
      offset += m.bytes;
      r.media.push_back(std::move(m));
    }
  }
  EXPECT_EQ(offset, bytes->size());
}

template <class T>
T must(Expected<T> value) {
  EXPECT_TRUE(value.ok()) << value.error().message;
  if (!value.ok()) abort();
  return std::move(value).value();
}

Case load(const std::string& name, DType activation) {
  Case c;
  c.device = must(device::make_cpu_device({1, false}));
  model::LoadOptions o;
  o.path = std::string(TERN_SOURCE_DIR) + "/tests/data/golden/" + name;
  o.activation = activation;
  c.golden = must(model::read_golden_case(o.path));
  if (const json::Value* v = json::find(c.golden.reference_options, "expert_predicate")) {
    o.overrides["expert_predicate"] = *v;
  }
  c.model = must(model::load_model(o, *c.device));
  c.tower = must(vision::load_tower(o, *c.device));
  const json::Object config = must(model::read_config(o.path, "config.json", {}));
  model::ConfigReader reader{config};
  std::vector<int32_t> placeholders;
  for (const char* key : {"image_token_id", "im_patch_id", "video_token_id"}) {
    for (int32_t id : model::token_ids(reader, key)) placeholders.push_back(id);
  }
  vision::PositionRule rule;
  if (c.golden.reference_options.contains("video_advance")) rule.advance = image::AdvanceRule::kMaxHw;
  if (const json::Value* v = json::find(c.golden.reference_options, "video_t_step"))
    rule.t_step = v->to_number<double>();
  const vision::CaseProcessor processor = must(vision::read_processor(c.golden.processor));
  for (const model::GoldenPrompt& g : c.golden.prompts) {
    const vision::Prompt p = must(vision::make_prompt(o.path, g, processor, *c.tower, placeholders, rule));
    Request r = Harness::request(0, g.ids, 12);
    r.positions = p.layout.positions.values;
    r.rope_delta = p.layout.positions.delta;
    EXPECT_TRUE(g.greedy.empty() || r.rope_delta == g.rope_delta);
    r.sampling.bad_words = c.golden.banned;
    r.sampling.logprobs = 2;
    r.ignore_eos = true;
    add_items(p, *c.tower, c.prompts.size() + 1, r);
    c.prompts.push_back(std::move(r));
  }
  return c;
}

EngineConfig config(int seqs, int budget, int blocks) {
  EngineConfig c;
  c.scheduler.block_size = 16;
  c.scheduler.max_num_seqs = seqs;
  c.scheduler.max_num_batched_tokens = budget;
  c.scheduler.max_model_len = 160;
  c.scheduler.prealloc_dec_block_slot_num_threshold = 2;
  c.scheduler.enc_dec_block_num = 1;
  c.num_blocks_override = blocks;
  c.vision.max_item_patches = 400;
  return c;
}

// Every prompt greedily, sampled and longer, and text beside them.
std::vector<Request> requests(const Case& c) {
  std::vector<Request> list;
  for (size_t i = 0; i < c.prompts.size(); ++i) {
    for (int kind = 0; kind < 3; ++kind) {
      Request r = c.prompts[i];
      r.id = list.size() + 1;
      r.max_tokens += 30 * kind;
      if (kind > 0) r.sampling.temperature = 1.0f, r.sampling.seed = r.id * 77;
      list.push_back(std::move(r));
    }
    Request text = Harness::request(list.size() + 1, {1, 20, 21, static_cast<int32_t>(30 + i), 22}, 25);
    text.ignore_eos = true, text.sampling.logprobs = 2;
    list.push_back(std::move(text));
  }
  return list;
}

std::map<RequestId, Answer> run(const Case& c, const EngineConfig& config, EngineStats* stats, bool one_by_one) {
  Harness h(config, *c.model, c.tower.get());
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

void expect_equal(const std::map<RequestId, Answer>& want, std::map<RequestId, Answer>& got) {
  for (const auto& [id, w] : want) {
    const Answer& g = got[id];
    ASSERT_EQ(w.ids, g.ids) << "request " << id << " " << g.last.error.message;
    for (size_t i = 0; i < w.tokens.size(); ++i) {
      for (size_t k = 0; k < w.tokens[i].logprobs.size(); ++k) {
        ASSERT_EQ(w.tokens[i].logprobs[k].logprob, g.tokens[i].logprobs[k].logprob)
            << "request " << id << " token " << i;
      }
    }
  }
}

struct Param {
  const char* name;
  DType activation;
  bool fills_v0 = true;  // its prompts are long enough for the older scheduler to run out of blocks
};
class RealVision : public testing::TestWithParam<Param> {};

TEST_P(RealVision, AnswersDoNotDependOnTheCompany) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the fake tower shows the threads";
#endif
  const Case c = load(GetParam().name, GetParam().activation);
  EngineStats stats;
  EngineConfig alone_config = config(1, 160, 20);
  alone_config.scheduler.prefix_caching = false;
  alone_config.scheduler.chunked_prefill = false;
  const auto alone = run(c, alone_config, &stats, true);
  EXPECT_GT(stats.encoder_hits, 0u);
  for (size_t i = 0; i < c.prompts.size() && GetParam().activation == DType::kF32; ++i) {
    const model::GoldenPrompt& g = c.golden.prompts[i];
    const auto& ids = alone.at(4 * i + 1).ids;
    for (size_t k = 0; k < g.greedy.size() && g.margins[k] > 1e-3; ++k) EXPECT_EQ(ids[k], g.greedy[k]) << g.name;
  }
  for (int budget : {8, 16, 64, 160}) {
    auto chunks = run(c, config(8, budget, 120), &stats, false);
    expect_equal(alone, chunks);
  }
  auto hits = run(c, config(2, 64, 120), &stats, true);
  EXPECT_GT(stats.prefix_hit_tokens, 0u);
  expect_equal(alone, hits);
  EngineConfig whole = config(2, 64, 120);
  whole.scheduler.disable_chunked_mm_input = true;
  auto rolled_back = run(c, whole, &stats, true);
  expect_equal(alone, rolled_back);
  for (bool v1 : {true, false}) {
    EngineConfig few = config(8, 16, 16);
    few.scheduler.reserve_output_blocks = 0;
    few.scheduler.v1 = v1;
    few.scheduler.max_num_partial_prefills = 3;
    auto preempted = run(c, few, &stats, false);
    if (v1 || GetParam().fills_v0) {
      EXPECT_GT(stats.preemptions, 0u);
    }
    expect_equal(alone, preempted);
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, RealVision,
                         testing::Values(Param{"paddleocr_vl", DType::kF32}, Param{"paddleocr_vl", DType::kBF16},
                                         Param{"ernie4_5_vl_moe", DType::kF32}, Param{"ernie4_5_vl_moe", DType::kBF16},
                                         Param{"qwen2_5_vl", DType::kF32, false},
                                         Param{"qwen2_5_vl", DType::kBF16, false}),
                         [](const auto& param) {
                           return std::string(param.param.name) + "_" + dtype_name(param.param.activation);
                         });

}  // namespace
}  // namespace tern::engine
