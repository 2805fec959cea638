// Random runs over both schedulers: small pools, prompts that repeat and continue each other, aborts, chunking, rows
// that yield no or several tokens, one and two steps in flight. TERN_RANDOM_STEPS sets the number of planned steps in
// all, TERN_RANDOM_SEED runs one seed alone. A run that fails prints itself as a script (script.h).
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <random>

#include "sched/tests/script.h"

namespace tern::sched::testing {
namespace {

#ifdef NDEBUG
constexpr long kSteps = 1'000'000;
#else
constexpr long kSteps = 50'000;
#endif
constexpr int kStepsPerSeed = 1000;

long steps_from_environment() {
  const char* text = std::getenv("TERN_RANDOM_STEPS");
  return text ? std::atol(text) : kSteps;
}

struct Totals {
  uint64_t steps = 0, preemptions[2] = {0, 0}, full_hits = 0, aborts = 0, hits = 0, resumed = 0, finished = 0,
           rollbacks = 0;
  uint64_t run_ahead = 0, over_budget = 0, chunks = 0;
};

class RandomRun {
 public:
  explicit RandomRun(uint64_t seed) : rng_(seed), world_(random_config()) {}

  void run(int steps, Totals& totals) {
    for (int i = 0; i < steps; ++i) {
      arrivals();
      if (chance(0.04)) abort_someone();
      const Plan& plan = world_.plan();
      ++totals.steps;
      count(plan, totals);
      const bool empty = plan.rows.empty();
      // An empty plan changes nothing until something is collected; sometimes it is asked for again all the same.
      const bool full = world_.open() >= depth_;
      if (world_.open() > 0 && (full || chance(empty ? 0.7 : 0.1))) collect(totals);
      if (i % 32 == 31) forget();
    }
    world_.drain(20000, static_cast<size_t>(depth_));
    const SchedulerStats stats = world_.scheduler().stats();
    totals.preemptions[world_.config().sched.v1 ? 1 : 0] += stats.preemptions;
    totals.full_hits += stats.full_hits;
    totals.hits += stats.prefix_hits;
    totals.resumed += stats.resumed;
    totals.aborts += static_cast<uint64_t>(world_.aborts());
    totals.finished += next_id_ - 1 - static_cast<uint64_t>(world_.aborts());
  }

  std::string script() const { return script_text(world_.config(), world_.commands()); }

 private:
  int pick(int low, int high) { return std::uniform_int_distribution<int>(low, high)(rng_); }
  bool chance(double p) { return std::uniform_real_distribution<double>(0, 1)(rng_) < p; }

  WorldConfig random_config() {
    WorldConfig c;
    SchedulerConfig& s = c.sched;
    s.v1 = chance(0.5);
    s.block_size = pick(1, 5);
    s.max_num_seqs = chance(0.1) ? 1 : pick(3, 8);
    s.max_num_batched_tokens = pick(s.max_num_seqs, 40);
    s.max_model_len = pick(16, 72);
    const int whole = (s.max_model_len + s.block_size - 1) / s.block_size;
    c.blocks = whole + (chance(0.75) ? pick(0, whole / 2) : pick(0, 3 * whole));
    s.chunked_prefill = chance(0.8);
    s.prefix_caching = chance(0.95);
    s.output_caching = chance(0.8);
    s.save_output_cache_for_preempted = chance(0.8);
    s.prealloc_dec_block_slot_num_threshold = pick(0, 12);
    s.enc_dec_block_num = pick(0, 3);
    s.reserve_output_blocks = chance(0.6) ? 0 : pick(1, 16);
    s.reserve_decay = chance(0.5) ? 0.025 : 1;
    s.kv_cache_ratio = std::uniform_real_distribution<double>(0.2, 1)(rng_);
    s.max_num_partial_prefills = pick(1, 3);
    s.max_long_partial_prefills = pick(1, s.max_num_partial_prefills);
    s.long_prefill_token_threshold = pick(0, 20);
    s.max_prefill_num = pick(1, 3);
    s.disable_chunked_mm_input = chance(0.5);
    s.max_logit_rows = chance(0.5) ? 0 : s.max_num_seqs + pick(7, 12);
    s.max_range_tokens = chance(0.5) ? 0 : pick(7, 20);
    depth_ = pick(1, 2);
    load_ = pick(3, 16);
    return c;
  }

  std::vector<int32_t> random_prompt(int longest) {
    std::vector<int32_t> prompt;
    // Short prompts that grow long are what exhausts the pool.
    if (chance(0.6)) longest = std::max(1, longest / 4);
    if (!library_.empty() && chance(0.85)) {
      prompt = library_[static_cast<size_t>(pick(0, static_cast<int>(library_.size()) - 1))];
      const double what = std::uniform_real_distribution<double>(0, 1)(rng_);
      if (what < 0.25) prompt.resize(static_cast<size_t>(pick(1, static_cast<int>(prompt.size()))));
      if (what > 0.2 && what < 0.4) {
        for (int i = pick(0, 8); i > 0; --i) prompt.push_back(pick(1, 3));
      }
    } else {
      for (int i = pick(1, longest); i > 0; --i) prompt.push_back(pick(1, 3));
    }
    if (static_cast<int>(prompt.size()) > longest) prompt.resize(static_cast<size_t>(longest));
    return prompt;
  }

  void arrivals() {
    if (world_.live() >= load_ || !chance(0.8)) return;
    const SchedulerConfig& c = world_.config().sched;
    NewSequence s;
    s.id = next_id_;
    const int longest =
        c.chunked_prefill ? c.max_model_len - 1 : std::min(c.max_model_len - 1, c.max_num_batched_tokens);
    s.prompt = random_prompt(longest);
    const auto length = static_cast<int>(s.prompt.size());
    s.max_new_tokens = pick(1, std::min(60, c.max_model_len - length));
    s.use_prefix_cache = !chance(0.05);
    if (chance(0.05)) s.prompt_logit_rows = 1;
    if (chance(0.1)) s.extra_keys.push_back({0, length, {static_cast<uint64_t>(pick(1, 2)), 0}});
    if (chance(0.2)) add_pictures(s, length);
    ++next_id_;
    const Status status = world_.add(s);
    if (!status.ok()) throw Failure("add was refused: " + status.error().message);
    ids_.push_back(s.id);
  }

  // Ranges that are not cut, each with the key of what it shows.
  void add_pictures(NewSequence& s, int length) {
    int at = pick(0, 6);
    while (at < length) {
      const int end = std::min(length, at + pick(1, 7));
      s.unsplittable.emplace_back(at, end);
      if (s.extra_keys.empty() || s.extra_keys.back().begin <= at) {
        s.extra_keys.push_back({at, end, {static_cast<uint64_t>(pick(1, 2)), 5}});
      }
      at = end + pick(0, 6);
    }
  }

  // Anyone of the last ones, running, waiting, preempted, ending or gone.
  void abort_someone() {
    if (ids_.empty()) return;
    const auto last = static_cast<int>(ids_.size()) - 1;
    world_.abort(ids_[static_cast<size_t>(pick(std::max(0, last - 12), last))]);
  }

  void count(const Plan& plan, Totals& totals) {
    for (const PlanRow& row : plan.rows) {
      totals.run_ahead += row.previous_row >= 0 ? 1 : 0;
      totals.chunks += row.samples ? 0 : 1;
    }
    totals.over_budget += plan.tokens > world_.config().sched.max_num_batched_tokens ? 1 : 0;
  }

  void collect(Totals& totals) {
    std::vector<Outcome> outcomes;
    for (SeqId id : world_.sampling()) {
      Outcome o{id, 1, chance(0.025)};
      if (!o.finished && chance(0.02)) {
        o.tokens = chance(0.5) ? 0 : 2;
        ++totals.rollbacks;
      }
      if (o.tokens != 1 || o.finished) outcomes.push_back(o);
    }
    world_.collect(outcomes);
  }

  // Ended requests become prompts of later ones.
  void forget() {
    std::erase_if(ids_, [&](SeqId id) {
      if (world_.alive(id)) return false;
      const std::vector<int32_t>& tokens = world_.request_tokens(id);
      if (library_.size() < 6) {
        library_.push_back(tokens);
      } else if (chance(0.3)) {
        library_[static_cast<size_t>(pick(0, 5))] = tokens;
      }
      return true;
    });
    world_.forget_ended();
  }

  std::mt19937_64 rng_;
  int depth_ = 1, load_ = 4;
  World world_;
  SeqId next_id_ = 1;
  std::vector<SeqId> ids_;
  std::vector<std::vector<int32_t>> library_;
};

const RandomRun* current_run = nullptr;

// A failed check ends the process; print how it came to that first.
void print_run(int) {
  if (current_run) {
    const std::string text = current_run->script();
    current_run = nullptr;
    [[maybe_unused]] const auto written = write(STDERR_FILENO, text.data(), text.size());
  }
  signal(SIGABRT, SIG_DFL);
  raise(SIGABRT);
}

bool run_seed(uint64_t seed, int steps, Totals& totals) {
  RandomRun run(seed);
  current_run = &run;
  std::string failure;
  try {
    run.run(steps, totals);
  } catch (const Failure& f) {
    failure = f.what();
  }
  current_run = nullptr;
  EXPECT_EQ(failure, "") << "seed " << seed << ", as a script:\n" << run.script();
  return failure.empty();
}

TEST(Random, NothingLeaksAndEveryoneFinishes) {
  const auto previous = signal(SIGABRT, print_run);
  Totals totals;
  const long steps = steps_from_environment();
  if (const char* seed = std::getenv("TERN_RANDOM_SEED")) {
    run_seed(std::strtoull(seed, nullptr, 10), kStepsPerSeed, totals);
  } else {
    for (uint64_t s = 1; static_cast<long>(totals.steps) < steps && run_seed(s, kStepsPerSeed, totals); ++s) {
    }
    if (steps >= 50'000) {
      EXPECT_GE(totals.preemptions[0] + totals.preemptions[1], 1000u);
      EXPECT_GE(std::min(totals.preemptions[0], totals.preemptions[1]), 100u);
      EXPECT_GE(totals.full_hits, 1000u);
      EXPECT_GE(totals.aborts, 1000u);
      EXPECT_GE(totals.rollbacks, 1000u);
      EXPECT_GE(totals.run_ahead, 1000u);
      EXPECT_GE(totals.over_budget, 100u);
    }
  }
  signal(SIGABRT, previous);
  printf(
      "steps %lu, finished %lu, preemptions %lu (legacy) and %lu (V1), resumed %lu, hits %lu, full hits %lu, aborts "
      "%lu, rows without or "
      "with "
      "two tokens %lu, rows run ahead %lu, chunks %lu, steps over budget for a range %lu\n",
      totals.steps, totals.finished, totals.preemptions[0], totals.preemptions[1], totals.resumed, totals.hits,
      totals.full_hits, totals.aborts, totals.rollbacks, totals.run_ahead, totals.chunks, totals.over_budget);
}

}  // namespace
}  // namespace tern::sched::testing
