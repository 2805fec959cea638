// Engines that share the experts of a model: their steps are one, whoever has something to do; answers are those of one
// engine on one rank.
#include "engine/ranks/lockstep.h"

#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "engine/tests/engine_harness.h"
#include "model/loader.h"

namespace tern::engine {
namespace {

using std::chrono::milliseconds;

std::string moe_folder() { return std::string(TERN_SOURCE_DIR) + "/tests/data/golden/qwen3_moe"; }

// Engines with ranks each over a model whose experts all of them share.
class Sharing {
 public:
  Sharing(int engines, int ranks, EngineConfig config) {
    lockstep_ = std::make_unique<Lockstep>(engines, ranks, device::make_cpu_communicators(engines * ranks, false));
    config.data_parallel.size = engines, config.data_parallel.lockstep = lockstep_.get();
    model::LoadOptions o;
    o.path = moe_folder(), o.activation = DType::kF32;
    o.shard = {0, ranks, true, 0, engines};
    std::vector<EnginePart> parts(static_cast<size_t>(engines));
    for (o.shard.engine = 0; o.shard.engine < engines; ++o.shard.engine) {
      EnginePart& part = parts[static_cast<size_t>(o.shard.engine)];
      for (o.shard.rank = 0; o.shard.rank < ranks; ++o.shard.rank) {
        devices_.push_back(device::make_cpu_device({1, false}).value());
        auto model = model::load_model(o, *devices_.back());
        EXPECT_TRUE(model.ok()) << model.error().message;
        if (!model.ok()) abort();
        models_.push_back(std::move(*model));
        part.ranks.push_back({models_.back().get(), devices_.back().get()});
      }
      if (ranks == 1) continue;
      groups_.push_back(device::make_cpu_communicators(ranks, false));
      part.group = groups_.back().get();
    }
    auto started = start_engines(config, parts);
    EXPECT_TRUE(started.ok()) << started.error().message;
    if (!started.ok()) abort();
    engine_ = std::move(*started);
  }
  EngineClient* operator->() { return engine_.get(); }
  void close() { engine_.reset(); }

  // Reads until so many requests have ended in all.
  void read(size_t count) {
    const int64_t limit = monotonic_ns() + 60'000'000'000;
    while (ended < count && monotonic_ns() < limit) {
      std::vector<Delta> deltas;
      (void)engine_->poll(deltas, milliseconds(50));
      for (Delta& d : deltas) {
        Answer& a = answers[d.id];
        for (const TokenOutput& t : d.tokens) a.ids.push_back(t.id);
        ended += d.finish != FinishReason::kNone;
        a.last = std::move(d);
      }
    }
    ASSERT_GE(ended, count) << "requests did not end in time";
  }

  std::map<RequestId, Answer> answers;
  size_t ended = 0;

 private:
  std::unique_ptr<Lockstep> lockstep_;
  std::vector<std::unique_ptr<device::Device>> devices_;
  std::vector<std::unique_ptr<model::Model>> models_;
  std::vector<std::unique_ptr<device::CommunicatorGroup>> groups_;
  std::unique_ptr<EngineClient> engine_;
};

EngineConfig small() {
  EngineConfig c = Harness::small(200, 4, 24);
  c.scheduler.block_size = 64, c.scheduler.max_model_len = 192;
  return c;
}

Request asked(RequestId id, std::mt19937& random) {
  std::vector<int32_t> prompt(1 + random() % 60);
  for (int32_t& token : prompt) token = static_cast<int32_t>(random() % 90) + 3;
  Request r = Harness::request(id, std::move(prompt), 1 + static_cast<int>(random() % 20));
  r.ignore_eos = true;
  return r;
}

// What one engine on one rank says to the same.
std::map<RequestId, std::vector<int32_t>> answers_of_one(const std::vector<Request>& requests) {
  const auto device = device::make_cpu_device({1, false}).value();
  model::LoadOptions o;
  o.path = moe_folder(), o.activation = DType::kF32;
  const auto whole = model::load_model(o, *device);
  EXPECT_TRUE(whole.ok()) << whole.error().message;
  if (!whole.ok()) abort();
  Harness h(small(), **whole);
  for (const Request& r : requests) EXPECT_TRUE(h->submit(r).ok());
  h.read(requests.size(), 60);
  std::map<RequestId, std::vector<int32_t>> said;
  for (const auto& [id, answer] : h.answers) said[id] = answer.ids;
  return said;
}

std::vector<Request> some_requests(int count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<Request> requests;
  for (int i = 1; i <= count; ++i) requests.push_back(asked(static_cast<RequestId>(i), random));
  return requests;
}

// Requests come in bunches and one by one, with pauses in which all engines are idle.
void expect_answers(Sharing& shared, const std::vector<Request>& requests, unsigned seed) {
  const auto want = answers_of_one(requests);
  std::mt19937 random(seed);
  for (const Request& r : requests) {
    ASSERT_TRUE(shared->submit(r).ok());
    if (random() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
    if (random() % 8 == 0) shared.read(r.id);
  }
  shared.read(requests.size());
  for (const auto& [id, ids] : want) EXPECT_EQ(shared.answers[id].ids, ids) << id;
}

TEST(Lockstep, AnswersAreThoseOfOneEngine) {
  for (const int ranks : {1, 2}) {
    SCOPED_TRACE(ranks);
    Sharing shared(2, ranks, small());
    expect_answers(shared, some_requests(24, 5), 7);
    shared->shutdown(false);
    std::vector<Delta> rest;
    while (shared->poll(rest, milliseconds(50))) {
    }
    const auto parts = shared->parts();
    EXPECT_EQ(parts[0].steps, parts[1].steps);
    EXPECT_GT(parts[0].generated_tokens, 0u);
    EXPECT_GT(parts[1].generated_tokens, 0u);
  }
}

// A single request: the other engine has empty steps, as many, and takes part in a drain and in an end at once.
TEST(Lockstep, AnIdleEngineStepsBesideABusyOne) {
  const std::vector<Request> requests = some_requests(1, 11);
  const auto want = answers_of_one(requests);
  for (const bool drained : {false, true}) {
    Sharing shared(2, 1, small());
    ASSERT_TRUE(shared->submit(requests[0]).ok());
    if (drained) shared->shutdown(false);
    shared.read(1);
    EXPECT_EQ(shared.answers[1].ids, want.at(1));
    if (!drained) continue;
    std::vector<Delta> rest;
    while (shared->poll(rest, milliseconds(50))) {
    }
    const auto parts = shared->parts();
    EXPECT_GE(parts[0].steps, want.at(1).size());
    EXPECT_EQ(parts[0].steps, parts[1].steps);
    EXPECT_EQ(parts[0].prompt_tokens * parts[1].prompt_tokens, 0u);
  }
}

// An abort that leaves an engine idle between two steps, and an end while requests are open.
TEST(Lockstep, AbortsAndAnEndInTheMiddle) {
  Sharing shared(2, 2, small());
  std::vector<Request> requests = some_requests(12, 3);
  for (Request& r : requests) {
    r.max_tokens = 100;
    ASSERT_TRUE(shared->submit(r).ok());
  }
  for (RequestId id = 1; id <= 9; ++id) shared->abort(id);
  shared.read(9);
  shared.close();
}

TEST(Lockstep, APauseOfAllEnds) {
  Sharing shared(2, 1, small());
  for (Request& r : some_requests(6, 4)) {
    r.max_tokens = 100;
    ASSERT_TRUE(shared->submit(std::move(r)).ok());
  }
  EXPECT_TRUE(shared->control({Control::kPause, {}}).get().ok());
  EXPECT_TRUE(shared->control({Control::kForget, {}}).get().ok());
  EXPECT_TRUE(shared->control({Control::kResume, {}}).get().ok());
  const std::vector<Request> requests = some_requests(1, 11);
  Request again = requests[0];
  again.id = 50;
  ASSERT_TRUE(shared->submit(std::move(again)).ok());
  shared.read(7);
  EXPECT_EQ(shared.answers[50].ids, answers_of_one(requests).at(1));
}

// A rank that fails takes all engines with it: nobody waits for it.
TEST(Lockstep, AFailingRankEndsAllEngines) {
  for (const int engine : {0, 1}) {
    for (const int rank : {0, 1}) {
      EngineConfig c = small();
      c.fault = device::Fault::kTrap, c.fault_step = 4, c.fault_rank = rank, c.fault_engine = engine;
      Sharing shared(2, 2, c);
      for (Request& r : some_requests(4, 2)) {
        r.max_tokens = 100;
        ASSERT_TRUE(shared->submit(std::move(r)).ok());
      }
      shared.read(4);
      int said_why = 0;
      for (const auto& [id, answer] : shared.answers) {
        EXPECT_EQ(answer.last.finish, FinishReason::kError);
        said_why += answer.last.error.message.find("a fault was asked for") != std::string::npos;
      }
      EXPECT_GE(said_why, 1);
      EXPECT_FALSE(shared->healthy());
      shared.close();  // returns
    }
  }
}

TEST(Lockstep, CountsOfAllEnginesOfAStep) {
  constexpr int kEngines = 3, kSteps = 200;
  Lockstep lockstep(kEngines, 1, device::make_cpu_communicators(kEngines, false));
  const auto brings = [](int engine, int step) { return engine * 1000 + step; };
  std::vector<std::thread> threads;
  for (int e = 0; e < kEngines; ++e) {
    threads.emplace_back([&, e] {
      for (int step = 0; step < kSteps; ++step) {
        int32_t all[kEngines] = {};
        ASSERT_TRUE(lockstep.meet(e, brings(e, step), all).ok());
        for (int other = 0; other < kEngines; ++other) ASSERT_EQ(all[other], brings(other, step));
      }
    });
  }
  for (std::thread& t : threads) t.join();
  std::thread waiting([&] {
    int32_t all[kEngines];
    EXPECT_FALSE(lockstep.meet(0, 1, all).ok());
  });
  lockstep.fail();
  waiting.join();
}

}  // namespace
}  // namespace tern::engine
