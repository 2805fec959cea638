// Steps as graphs: which sizes there are, what padding holds, that answers are those of steps that run as they are.
#include "engine/step/step_graphs.h"

#include <gtest/gtest.h>

#include <random>

#include "engine/tests/graph_model.h"
#include "engine/tests/picture_request.h"

namespace tern::engine {
namespace {

model::BatchLimits limits(int tokens, int rows) {
  model::BatchLimits l;
  l.max_tokens = tokens, l.max_rows = rows, l.max_logit_rows = rows, l.max_blocks_per_row = 4;
  return l;
}

model::Batch batch(int tokens, int rows, int logit_rows, int longest) {
  model::Batch b;
  b.tokens = tokens, b.rows = rows, b.logit_rows = logit_rows, b.max_query_len = longest;
  return b;
}

TEST(GraphShapes, AutomaticSizesAreThoseOfTheSeed) {
  std::vector<int> want = {1, 2, 4};
  for (int n = 8; n <= 128; n += 8) want.push_back(n);
  for (int n = 144; n <= 256; n += 16) want.push_back(n);
  EXPECT_EQ(automatic_sizes(256), want);
  EXPECT_EQ(automatic_sizes(8), (std::vector<int>{1, 2, 4, 8}));
  EXPECT_EQ(automatic_sizes(10), (std::vector<int>{1, 2, 4, 8, 10}));
  EXPECT_EQ(automatic_sizes(512).back(), 512);
}

TEST(GraphShapes, TheSmallestThatHoldsTheStep) {
  auto made = GraphShapes::make({}, limits(8192, 100));
  ASSERT_TRUE(made.ok());
  const GraphShapes& s = made.value();
  const auto found = [&](const model::Batch& b) {
    const int i = s.find(b);
    return i < 0 ? StepShape{} : s.shapes()[static_cast<size_t>(i)];
  };
  StepShape f = found(batch(5, 5, 5, 1));
  EXPECT_TRUE(f.decode && f.tokens == 8 && f.rows == 8);
  f = found(batch(97, 97, 97, 1));
  EXPECT_TRUE(f.decode && f.rows == 100);
  f = found(batch(20, 3, 2, 18));
  EXPECT_TRUE(!f.decode && f.tokens == 32 && f.rows == 4);
  f = found(batch(17, 16, 16, 2));
  EXPECT_TRUE(!f.decode && f.tokens == 32 && f.rows == 16);
  f = found(batch(512, 40, 40, 400));
  EXPECT_TRUE(!f.decode && f.tokens == 512 && f.rows == 64);
  EXPECT_EQ(s.find(batch(513, 2, 2, 512)), -1);
  EXPECT_EQ(s.find(batch(120, 1, 120, 120)), -1) << "every token of a prompt is scored";
  for (const StepShape& shape : s.shapes()) {
    EXPECT_LE(shape.rows, shape.tokens);
    EXPECT_LE(shape.rows, 100);
    EXPECT_LE(shape.tokens, 512);
  }
}

TEST(GraphShapes, WhatTheConfigurationSays) {
  GraphConfig c;
  c.sizes = {6, 2, 2, 300};
  c.max_prefill = 0;
  auto s = GraphShapes::make(c, limits(64, 8));
  ASSERT_TRUE(s.ok());
  ASSERT_EQ(s.value().shapes().size(), 2u);
  EXPECT_EQ(s.value().find(batch(7, 7, 7, 1)), -1) << "above the largest size a step runs as it is";
  EXPECT_EQ(s.value().find(batch(7, 3, 3, 5)), -1);
  EXPECT_EQ(s.value().find_samples(3), 1);
  EXPECT_EQ(s.value().find_samples(7), -1);
  c.max_prefill = 512, c.prefill_sizes = {40, 4096}, c.only_prefill = true;
  s = GraphShapes::make(c, limits(64, 8));
  ASSERT_TRUE(s.ok());
  EXPECT_EQ(s.value().find(batch(2, 2, 2, 1)), -1);
  EXPECT_EQ(s.value().most_tokens(), 40);
  c.use = false;
  EXPECT_TRUE(GraphShapes::make(c, limits(64, 8)).value().shapes().empty());
  c.use = true, c.sizes = {0};
  s = GraphShapes::make(c, limits(64, 8));
  ASSERT_FALSE(s.ok());
  EXPECT_NE(s.error().message.find("cudagraph_capture_sizes"), std::string::npos);
}

// Prompts with common beginnings, half of them sampled with every processor.
std::vector<Request> requests(int count, bool logprobs) {
  std::mt19937 rng(5);
  std::vector<Request> list;
  for (int i = 1; i <= count; ++i) {
    std::vector<int32_t> prompt(2 + rng() % 60);
    for (size_t k = 0; k < prompt.size(); ++k) prompt[k] = static_cast<int32_t>(k < 24 ? k * 7 % 97 : rng() % 97);
    Request r = Harness::request(static_cast<RequestId>(i), std::move(prompt), 4 + static_cast<int>(rng() % 40));
    r.ignore_eos = true;
    SamplingParams& p = r.sampling;
    if (i % 2 == 0) p.temperature = 0.9f, p.top_p = 0.95f, p.seed = static_cast<uint64_t>(i);
    if (i % 4 == 0) p.repetition_penalty = 1.2f, p.presence_penalty = 0.3f;
    if (i % 8 == 0) p.logit_bias = {{5, 2.0f}}, p.bad_words = {7, 9};
    if (logprobs && i % 3 == 0) p.logprobs = 2;
    list.push_back(std::move(r));
  }
  return list;
}

struct Outcome {
  std::map<RequestId, Answer> answers;
  EngineStats stats;
  int launched = 0, pad_tokens = 0, pad_rows = 0;
};

EngineConfig config(const GraphConfig& graphs) {
  EngineConfig c = Harness::small(200, 16, 64);
  c.graphs = graphs;
  return c;
}

Outcome run(const EngineConfig& config, const std::vector<Request>& list, bool has_graphs = true, size_t ranks = 1) {
  GraphModel model({});
  std::vector<std::unique_ptr<device::Device>> devices;
  std::vector<GraphDevice*> all;
  for (size_t r = 0; r < ranks; ++r) {
    auto device = std::make_unique<GraphDevice>();
    device->graphs = has_graphs;
    all.push_back(device.get());
    devices.push_back(std::move(device));
  }
  GraphDevice& d = *all.back();
  Harness h(config, std::vector<const model::Model*>(ranks, &model), std::move(devices));
  for (const Request& r : list) EXPECT_TRUE(h->submit(r).ok());
  h.read(list.size());
  EXPECT_TRUE(h->healthy());
  Outcome out;
  out.stats = h->stats();
  for (const GraphDevice* other : all) EXPECT_EQ(other->launched, d.launched);
  out.launched = d.launched, out.pad_tokens = model.pad_tokens, out.pad_rows = model.pad_rows;
  h.close();
  out.answers = std::move(h.answers);
  return out;
}

void expect_same(const Outcome& want, Outcome& got) {
  for (const auto& [id, w] : want.answers) {
    const Answer& g = got.answers[id];
    ASSERT_EQ(w.ids, g.ids) << "request " << id << ": " << g.last.error.message;
    for (size_t i = 0; i < w.tokens.size(); ++i) {
      EXPECT_EQ(w.tokens[i].entropy, g.tokens[i].entropy);
      EXPECT_EQ(w.tokens[i].kept, g.tokens[i].kept);
      ASSERT_EQ(w.tokens[i].logprobs.size(), g.tokens[i].logprobs.size());
      for (size_t k = 0; k < w.tokens[i].logprobs.size(); ++k) {
        EXPECT_EQ(w.tokens[i].logprobs[k].logprob, g.tokens[i].logprobs[k].logprob);
      }
    }
  }
}

TEST(StepGraphs, MixedLoadIsReplayedAndAnswersAreTheSame) {
  const auto list = requests(120, false);
  const Outcome plain = run(config({}), list, false);
  EXPECT_EQ(plain.stats.graph_steps, 0u);
  EXPECT_EQ(plain.launched, 0);
  Outcome replayed = run(config({}), list);
  expect_same(plain, replayed);
  EXPECT_GT(replayed.stats.prefix_hits, 0u);
  EXPECT_GE(replayed.stats.graph_steps * 100, replayed.stats.steps * 95);
  EXPECT_GT(replayed.pad_tokens, 0);
  EXPECT_GT(replayed.pad_rows, 0);
  // A second graph samples; steps without a token to sample need none.
  EXPECT_GT(replayed.launched, static_cast<int>(replayed.stats.graph_steps));
  EXPECT_LE(replayed.launched, 2 * static_cast<int>(replayed.stats.steps));
}

TEST(StepGraphs, SeveralRanksReplayTheSameGraphs) {
  for (const size_t ranks : {2, 4}) {
    const bool logprobs = ranks == 4;
    const auto list = requests(60, logprobs);
    const Outcome plain = run(config({}), list, false);
    Outcome eager = run(config({}), list, false, ranks);
    expect_same(plain, eager);
    Outcome replayed = run(config({}), list, true, ranks);
    expect_same(plain, replayed);
    EXPECT_GE(replayed.stats.graph_steps * 100, replayed.stats.steps * 95);
    if (logprobs) continue;  // which have no graph of sampling
    EXPECT_GT(replayed.launched, static_cast<int>(replayed.stats.graph_steps));
  }
}

TEST(StepGraphs, LogProbabilitiesComeFromStepsThatSampleAsTheyAre) {
  const auto list = requests(60, true);
  const Outcome plain = run(config({}), list, false);
  Outcome replayed = run(config({}), list);
  expect_same(plain, replayed);
  EXPECT_GE(replayed.stats.graph_steps * 100, replayed.stats.steps * 95);
}

TEST(StepGraphs, WhatTokensAreDrawnFrom) {
  const auto list = requests(60, true);
  EngineConfig c = config({});
  const Outcome without = run(c, list, false);
  c.kept_tokens = true;  // rows that truncate nothing do not ask
  const Outcome plain = run(c, list, false);
  for (const auto& [id, answer] : without.answers) EXPECT_EQ(answer.ids, plain.answers.at(id).ids);
  for (const size_t ranks : {1, 3}) {
    Outcome replayed = run(c, list, true, ranks);
    expect_same(plain, replayed);
    EXPECT_GE(replayed.stats.graph_steps * 100, replayed.stats.steps * 95);
  }
}

TEST(StepGraphs, StepsAboveTheLargestSizeRunAsTheyAre) {
  GraphConfig few;
  few.sizes = {1, 3}, few.max_prefill = 0;
  const auto list = requests(40, false);
  const Outcome plain = run(config({}), list, false);
  Outcome mixed = run(config(few), list);
  expect_same(plain, mixed);
  EXPECT_GT(mixed.stats.graph_steps, 0u);
  EXPECT_LT(mixed.stats.graph_steps, mixed.stats.steps);
  GraphConfig off;
  off.use = false;
  Outcome eager = run(config(off), list);
  expect_same(plain, eager);
  EXPECT_EQ(eager.stats.graph_steps, 0u);
}

TEST(StepGraphs, PromptLogProbabilities) {
  auto list = requests(12, true);
  for (Request& r : list) r.sampling.prompt_logprobs = 1;
  const Outcome plain = run(config({}), list, false);
  Outcome replayed = run(config({}), list);
  expect_same(plain, replayed);
  EXPECT_LT(replayed.stats.graph_steps, replayed.stats.steps);
}

TEST(StepGraphs, StepsThatOnlyDecodeAreOneGraphUnlessRowsAskForMoreThanPenalties) {
  for (const bool more : {false, true}) {
    std::vector<Request> list;
    for (int i = 1; i <= 12; ++i) {
      Request r = Harness::request(static_cast<RequestId>(i), {i, 2, 3}, 60);
      r.ignore_eos = true;
      r.sampling.temperature = 0.9f, r.sampling.seed = static_cast<uint64_t>(i);
      r.sampling.repetition_penalty = i % 2 == 0 ? 1.2f : 1.0f;
      if (more && i == 5) r.sampling.logit_bias = {{5, 2.0f}};
      list.push_back(std::move(r));
    }
    const Outcome plain = run(config({}), list, false);
    Outcome replayed = run(config({}), list);
    expect_same(plain, replayed);
    EXPECT_EQ(replayed.stats.graph_steps, replayed.stats.steps);
    const auto steps = static_cast<int>(replayed.stats.steps);
    if (more) {
      EXPECT_GT(replayed.launched, steps + steps / 2);
    } else {
      EXPECT_LT(replayed.launched, steps + steps / 2);
    }
  }
}

TEST(StepGraphs, ACaptureThatFailsNamesTheFlag) {
  GraphModel model({});
  GraphDevice device;
  device.refuse_captures = true;
  auto engine = Engine::start(config({}), model, device);
  ASSERT_FALSE(engine.ok());
  EXPECT_EQ(engine.error().param, "graph-optimization-config");
  EXPECT_NE(engine.error().message.find("no room for a graph; --no-use-cudagraph"), std::string::npos);
}

TEST(StepGraphs, Pictures) {
  FakeOptions options;
  options.hidden = FakeTower::kHidden;
  FakeTower tower;
  GraphModel model(options);
  EngineConfig c = Harness::small(200, 8, 64);
  c.vision.max_item_patches = 400;
  Harness h(c, model, std::make_unique<GraphDevice>(), &tower);
  std::vector<Request> list;
  for (int i = 1; i <= 40; ++i) {
    PictureRequest p;
    p.text({i % 3, 2, 3}).picture(4 + 2 * (i % 3), 6, static_cast<uint64_t>(i % 5)).text({8, 9, i % 90});
    list.push_back(p.make(static_cast<RequestId>(i), 12));
    ASSERT_TRUE(h->submit(list.back()).ok());
  }
  h.read(list.size());
  for (const Request& r : list) {
    EXPECT_EQ(h.answers[r.id].ids, PictureRequest::answer(model.fake(), r, r.max_tokens))
        << h.answers[r.id].last.error.message;
  }
  const EngineStats s = h->stats();
  EXPECT_GT(tower.calls.load(), 0);
  EXPECT_GE(s.graph_steps * 100, s.steps * 90);
}

}  // namespace
}  // namespace tern::engine
