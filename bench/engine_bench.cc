// The host's share of a step: planning and batch building (plan), taking results (collect), with a model that costs
// nothing; and sampling of one row of logits.
#include <benchmark/benchmark.h>

#include <atomic>
#include <memory>
#include <random>

#include "device/device.h"
#include "engine/engine.h"
#include "engine/tests/fake_model.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/sample/sample_row.h"

namespace {

using namespace tern;

// Adds up the phases of the engine's thread; may put what the host keeps out of its core's caches, as a long step does.
class Phases final : public engine::StepTrace {
 public:
  enum class Cold : uint8_t { kNever, kBeforeCollect, kBeforeBoth };
  explicit Phases(Cold cold) : cold_(cold), memory_(cold == Cold::kNever ? 0 : size_t{64} << 20, 1) {}
  void add(const engine::StepSpan& s) override {
    if (s.phase != engine::StepPhase::kPlan && s.phase != engine::StepPhase::kCollect) return;
    const bool plan = s.phase == engine::StepPhase::kPlan;
    (plan ? plan_ns : collect_ns) += s.end_ns - s.begin_ns;
    if (cold_ == Cold::kNever || (!plan && cold_ != Cold::kBeforeBoth)) return;
    int sum = 0;
    for (size_t i = 0; i < memory_.size(); i += 64) sum += memory_[i];
    benchmark::DoNotOptimize(sum);
  }
  std::atomic<int64_t> plan_ns{0}, collect_ns{0};

 private:
  const Cold cold_;
  std::vector<char> memory_;
};

// Sequences of 1,024 to 1,279 tokens decode; the vocabulary is small so that the model and the sampler stay out of the
// way.
void BM_EngineStep(benchmark::State& state) {
  const int running = static_cast<int>(state.range(0));
  engine::FakeOptions options;
  options.deep = false, options.full_logits = false;
  const engine::FakeModel model(options);
  auto device = device::make_cpu_device({1, false});
  Phases phases(static_cast<Phases::Cold>(state.range(1)));
  engine::EngineConfig c;
  c.trace = &phases;
  c.scheduler.max_num_seqs = running;
  c.scheduler.max_num_batched_tokens = 8192;
  c.scheduler.max_model_len = 8192;
  c.num_blocks_override = running * 130;
  c.scheduler.prefix_caching = false;
  auto engine = engine::Engine::start(c, model, **device);
  if (!engine.ok()) return state.SkipWithError(engine.error().message.c_str());
  for (int i = 0; i < running; ++i) {
    engine::Request r;
    r.id = static_cast<engine::RequestId>(i) + 1;
    r.prompt.assign(static_cast<size_t>(1024 + i), 1 + i % 90);
    r.max_tokens = 6000;
    r.sampling.temperature = 0;
    if (!(*engine)->submit(std::move(r)).ok()) return state.SkipWithError("submit failed");
  }
  std::vector<engine::Delta> out;
  while ((*engine)->stats().running < running ||
         (*engine)->stats().generated_tokens < 200u * static_cast<unsigned>(running)) {
    out.clear();
    (*engine)->poll(out, std::chrono::milliseconds(10));
  }
  const engine::EngineStats before = (*engine)->stats();
  const int64_t plan_ns = phases.plan_ns, collect_ns = phases.collect_ns;
  for (auto _ : state) {
    const uint64_t target = (*engine)->stats().steps + 100;
    while ((*engine)->stats().steps < target) {
      out.clear();
      (*engine)->poll(out, std::chrono::milliseconds(1));
    }
  }
  const engine::EngineStats after = (*engine)->stats();
  const auto steps = static_cast<double>(after.steps - before.steps);
  const auto us = [&](int64_t ns) { return static_cast<double>(ns) / steps / 1e3; };
  state.counters["plan_and_build_us"] = us(phases.plan_ns - plan_ns);
  state.counters["collect_us"] = us(phases.collect_ns - collect_ns);
  state.counters["running"] = after.running;
}
BENCHMARK(BM_EngineStep)->Args({256, 0})->Iterations(10)->Unit(benchmark::kMillisecond);
// With cold caches before a step's results are taken, and before the next one is planned as well.
BENCHMARK(BM_EngineStep)->Args({256, 1})->Args({256, 2})->Iterations(2)->Unit(benchmark::kMillisecond);

struct Row {
  explicit Row(float sigma) : x(151936), memory(kernels::RowSpace::bytes(151936) + 64) {
    std::mt19937 rng(1);
    std::normal_distribution<float> d(0, sigma);
    for (float& v : x) v = d(rng);
    auto p = reinterpret_cast<uintptr_t>(memory.data());
    space = kernels::RowSpace::make(reinterpret_cast<void*>((p + 63) / 64 * 64), 151936);
  }
  std::vector<float> x;
  std::vector<char> memory;
  kernels::RowSpace space;
};

void sample_rows(benchmark::State& state, kernels::SampleRowArgs args, float sigma) {
  Row row(sigma);
  args.x = row.x.data(), args.n = static_cast<int64_t>(row.x.size());
  uint64_t random = 0;
  for (auto _ : state) {
    args.random = random += 0x9e3779b97f4a7c15ull;
    benchmark::DoNotOptimize(kernels::sample_row(kernels::sample_kernels(), args, row.space));
  }
  state.SetLabel(isa_name(active_isa()));
}
void BM_Greedy(benchmark::State& s) { sample_rows(s, {.greedy = true}, 2.0f); }
void BM_TopP(benchmark::State& s) { sample_rows(s, {.top_p = 0.8f}, static_cast<float>(s.range(0))); }
void BM_TopKTopP(benchmark::State& s) { sample_rows(s, {.top_p = 0.8f, .top_k = 50}, 2.0f); }
void BM_MinP(benchmark::State& s) { sample_rows(s, {.min_p = 0.05f}, 2.0f); }
void BM_Untruncated(benchmark::State& s) { sample_rows(s, {}, 2.0f); }
void BM_Logprobs(benchmark::State& s) {
  Row row(2.0f);
  kernels::Candidate out[32];
  kernels::LogprobArgs a;
  a.x = row.x.data(), a.n = static_cast<int64_t>(row.x.size()), a.target = 5, a.top = static_cast<int32_t>(s.range(0));
  for (auto _ : s) kernels::logprobs(kernels::sample_kernels(), a, row.space, out);
}
BENCHMARK(BM_Greedy)->Unit(benchmark::kMicrosecond);
BENCHMARK(BM_TopP)->Arg(0)->Arg(1)->Arg(2)->Arg(4)->Unit(benchmark::kMicrosecond);
BENCHMARK(BM_TopKTopP)->Unit(benchmark::kMicrosecond);
BENCHMARK(BM_MinP)->Unit(benchmark::kMicrosecond);
BENCHMARK(BM_Untruncated)->Unit(benchmark::kMicrosecond);
BENCHMARK(BM_Logprobs)->Arg(0)->Arg(20)->Unit(benchmark::kMicrosecond);

}  // namespace

BENCHMARK_MAIN();
