// What engine tests share: an engine over some model, and a reader of its deltas.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "device/device.h"
#include "engine/engines.h"
#include "engine/tests/fake_model.h"

namespace tern::engine {

struct Answer {
  std::vector<int32_t> ids;
  std::vector<TokenOutput> tokens;
  std::vector<std::vector<TokenLogprob>> prompt_logprobs;
  Delta last;
  int deltas = 0;
};

class Harness {
 public:
  explicit Harness(const EngineConfig& config, FakeOptions options = {}) : fake_(options) { start(config, fake_); }
  Harness(const EngineConfig& config, const model::Model& model, const vision::Tower* tower = nullptr) : fake_({}) {
    start(config, model, tower);
  }
  Harness(const EngineConfig& config, FakeOptions options, const vision::Tower& tower) : fake_(options) {
    start(config, fake_, &tower);
  }
  Harness(const EngineConfig& config, const model::Model& model, std::unique_ptr<device::Device> device,
          const vision::Tower* tower = nullptr)
      : fake_({}), device_(std::move(device)) {
    start(config, model, tower);
  }
  // Over as many ranks as there are parts of the model.
  Harness(const EngineConfig& config, const std::vector<const model::Model*>& parts, int engines = 1) : fake_({}) {
    start_ranks(config, parts, nullptr, engines);
  }
  Harness(const EngineConfig& config, const std::vector<const model::Model*>& parts,
          std::vector<std::unique_ptr<device::Device>> devices)
      : fake_({}), devices_(std::move(devices)) {
    start_ranks(config, parts);
  }
  Harness(const EngineConfig& config, FakeOptions options, int ranks, const vision::Tower* tower = nullptr,
          int engines = 1)
      : fake_(options) {
    start_ranks(config, std::vector<const model::Model*>(static_cast<size_t>(ranks), &fake_), tower, engines);
  }

  static EngineConfig small(int blocks = 64, int seqs = 8, int budget = 64) {
    EngineConfig c;
    c.scheduler.block_size = 8;
    c.scheduler.max_num_seqs = seqs;
    c.scheduler.max_num_batched_tokens = budget;
    c.scheduler.max_model_len = 160;
    c.scheduler.prealloc_dec_block_slot_num_threshold = 2;
    c.num_blocks_override = blocks;
    c.eos_token_ids = {0};
    return c;
  }
  static Request request(RequestId id, std::vector<int32_t> prompt, int max_tokens) {
    Request r;
    r.id = id;
    r.prompt = std::move(prompt);
    r.max_tokens = max_tokens;
    r.arrival_ns = monotonic_ns();
    r.sampling.temperature = 0;
    return r;
  }

  EngineClient* operator->() { return engine_.get(); }
  const FakeModel& fake() const { return fake_; }
  void close() { engine_.reset(); }

  // Reads until `count` requests in all have ended, or `seconds` have passed.
  void read(size_t count, double seconds = 20) {
    const int64_t limit = monotonic_ns() + static_cast<int64_t>(seconds * 1e9);
    while (ended < count && monotonic_ns() < limit) take(std::chrono::milliseconds(50));
    EXPECT_GE(ended, count) << "requests did not end in time";
  }
  bool take(std::chrono::milliseconds timeout) {
    std::vector<Delta> deltas;
    const bool open = engine_->poll(deltas, timeout);
    for (Delta& d : deltas) {
      Answer& a = answers[d.id];
      EXPECT_EQ(a.last.finish, FinishReason::kNone) << "news of request " << d.id << " after its end";
      for (TokenOutput& t : d.tokens) {
        a.ids.push_back(t.id);
        a.tokens.push_back(t);
      }
      if (!d.prompt_logprobs.empty()) a.prompt_logprobs = d.prompt_logprobs;
      ++a.deltas;
      ended += d.finish != FinishReason::kNone;
      a.last = std::move(d);
    }
    return open;
  }

  std::map<RequestId, Answer> answers;
  size_t ended = 0;

 private:
  void start(const EngineConfig& config, const model::Model& model, const vision::Tower* tower = nullptr) {
    if (device_ == nullptr) {
      auto device = device::make_cpu_device({1, false});
      EXPECT_TRUE(device.ok());
      device_ = std::move(device).value();
    }
    auto engine = Engine::start(config, model, *device_, tower);
    EXPECT_TRUE(engine.ok()) << engine.error().message;
    if (!engine.ok()) abort();
    engine_ = std::move(engine).value();
  }
  void start_ranks(EngineConfig config, const std::vector<const model::Model*>& parts,
                   const vision::Tower* tower = nullptr, int engines = 1) {
    config.data_parallel.size = engines;
    std::vector<EnginePart> all(static_cast<size_t>(engines));
    size_t taken = 0;
    for (EnginePart& engine : all) {
      for (const model::Model* part : parts) {
        if (taken == devices_.size()) devices_.push_back(device::make_cpu_device({1, false}).value());
        engine.ranks.push_back({part, devices_[taken++].get()});
      }
      if (parts.size() > 1) {
        groups_.push_back(device::make_cpu_communicators(static_cast<int>(parts.size()), false));
        engine.group = groups_.back().get();
      }
      engine.tower = tower;
    }
    auto started = start_engines(config, all);
    EXPECT_TRUE(started.ok()) << started.error().message;
    if (!started.ok()) abort();
    engine_ = std::move(started).value();
  }
  FakeModel fake_;
  std::unique_ptr<device::Device> device_;
  std::vector<std::unique_ptr<device::Device>> devices_;  // of ranks
  std::vector<std::unique_ptr<device::CommunicatorGroup>> groups_;
  std::unique_ptr<EngineClient> engine_;
};

}  // namespace tern::engine
