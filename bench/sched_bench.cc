// Microseconds of one scheduling step, planned and collected, with one step in flight behind it: 256 sequences that
// decode, and the same with requests that end and new ones that come in. Blocks are read as a batch builder reads them.
#include <benchmark/benchmark.h>

#include <chrono>
#include <memory>

#include "sched/scheduler.h"

namespace tern::sched {
namespace {

class Load {
 public:
  Load(bool v1, int seqs) : pool_(40000), index_(pool_, HashKey{1, 2}) {
    config_.v1 = v1;
    config_.max_num_seqs = seqs;
    config_.max_num_batched_tokens = 8192;
    config_.max_model_len = 32768;
    config_.reserve_output_blocks = 0;
    config_.kv_cache_ratio = 0.5;
    config_.max_prefill_num = config_.max_num_partial_prefills = config_.max_long_partial_prefills = seqs;
    scheduler_ = make_scheduler(config_, pool_, index_);
    for (int i = 0; i < seqs; ++i) arrive(30000);
    for (auto& r : results_) r.reserve(static_cast<size_t>(seqs));
    for (int i = 0; i < 64; ++i) step(0);
  }

  void arrive(int new_tokens) {
    NewSequence s;
    s.id = ++last_id_;
    s.prompt.assign(512, static_cast<int32_t>(last_id_ % 50));
    s.max_new_tokens = new_tokens;
    if (!scheduler_->add(std::move(s)).ok()) std::abort();
  }

  // One plan and one collect; the first `ending` sampling rows end.
  void step(int ending) {
    const size_t now = steps_++ % 2;
    scheduler_->plan(plans_[now]);
    results_[now].clear();
    for (const PlanRow& row : plans_[now].rows) {
      if (!row.samples) continue;
      results_[now].push_back({row.seq, std::span(&token_, 1), static_cast<int>(results_[now].size()) < ending});
    }
    if (steps_ > 1) scheduler_->collect(results_[1 - now]);
  }

  int64_t read_blocks() {
    int64_t sum = 0;
    for (const PlanRow& row : plans_[(steps_ - 1) % 2].rows) sum += scheduler_->blocks(row.seq).back();
    return sum;
  }
  size_t rows() const { return plans_[(steps_ - 1) % 2].rows.size(); }

 private:
  SchedulerConfig config_;
  cache::BlockPool pool_;
  cache::PrefixIndex index_;
  std::unique_ptr<Scheduler> scheduler_;
  SeqId last_id_ = 0;
  size_t steps_ = 0;
  Plan plans_[2];
  std::vector<Scheduler::RowResult> results_[2];
  const int32_t token_ = 17;
};

// Steps until sequences near their limit; then a fresh load outside the measured time.
void run(benchmark::State& state, bool v1, int ending) {
  const auto seqs = static_cast<int>(state.range(0));
  std::unique_ptr<Load> load;
  size_t left = 0, rows = 0;
  for (auto _ : state) {
    if (left == 0) {
      state.PauseTiming();
      load = std::make_unique<Load>(v1, seqs);
      left = 4000;
      state.ResumeTiming();
    }
    --left;
    load->step(ending);
    rows += load->rows();
    for (int i = 0; i < ending; ++i) load->arrive(30000);
  }
  state.counters["rows/step"] = benchmark::Counter(static_cast<double>(rows), benchmark::Counter::kAvgIterations);
}

void BM_DecodeV1(benchmark::State& state) { run(state, true, 0); }
void BM_DecodeLegacy(benchmark::State& state) { run(state, false, 0); }
void BM_FourEndFourArriveV1(benchmark::State& state) { run(state, true, 4); }
void BM_FourEndFourArriveLegacy(benchmark::State& state) { run(state, false, 4); }
BENCHMARK(BM_DecodeV1)->Arg(1)->Arg(32)->Arg(256)->Unit(benchmark::kMicrosecond)->MinTime(0.3);
BENCHMARK(BM_DecodeLegacy)->Arg(256)->Unit(benchmark::kMicrosecond)->MinTime(0.3);
BENCHMARK(BM_FourEndFourArriveV1)->Arg(256)->Unit(benchmark::kMicrosecond)->MinTime(0.3);
BENCHMARK(BM_FourEndFourArriveLegacy)->Arg(256)->Unit(benchmark::kMicrosecond)->MinTime(0.3);

void BM_LookUpBlocks(benchmark::State& state) {
  Load load(true, static_cast<int>(state.range(0)));
  for (auto _ : state) benchmark::DoNotOptimize(load.read_blocks());
}
BENCHMARK(BM_LookUpBlocks)->Arg(256)->Unit(benchmark::kMicrosecond)->MinTime(0.1);

}  // namespace
}  // namespace tern::sched

BENCHMARK_MAIN();
