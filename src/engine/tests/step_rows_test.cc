// Plain rows: a step that takes them at once holds, byte for byte, what a step filled row by row holds. Both follow
// random schedules: arrivals, ends, preemption, chunks, block boundaries, rows that yield no or several tokens.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>

#include "engine/step/step.h"
#include "engine/tests/graph_device.h"

namespace tern::engine {
namespace {

constexpr int kSeqs = 8, kTokens = 40, kLength = 96;

std::string bytes(const sample::CopyList& list) {
  std::string all;
  for (const device::CopySpan& p : list.pieces()) {
    for (size_t r = 0; r < p.rows; ++r) all.append(static_cast<const char*>(p.src) + r * p.src_stride, p.bytes);
  }
  return all;
}

class StepRows {
 public:
  explicit StepRows(uint32_t seed) : rng_(seed), config_(config()), pool_(blocks_ + 1), index_(pool_, HashKey{}) {
    scheduler_ = sched::make_scheduler(config_, pool_, index_);
    limits_.max_tokens = kTokens, limits_.max_rows = limits_.max_logit_rows = kSeqs;
    limits_.max_blocks_per_row = kLength / config_.block_size + 1;
    sample::SamplerLimits sampling;
    sampling.slots = sampling.max_rows = sampling.max_logit_rows = kSeqs;
    sampling.vocab = 64, sampling.max_logprobs = 2, sampling.masks = true;
    pictures_ = tensor2(picture_memory_, DType::kF32, 4, 1);
    for (auto* pair : {&fast_, &slow_}) {
      for (size_t i = 0; i < 2; ++i) {
        auto made =
            Step::create({limits_, sampling, seed % 2 == 0 ? pictures_ : TensorView{}}, device_, (*pair)[0].get());
        if (!made.ok()) throw std::runtime_error(made.error().message);
        (*pair)[i] = std::make_unique<Step>(std::move(made).value());
      }
    }
  }

  void run(int turns) {
    for (int i = 0; i < turns && !testing::Test::HasFailure(); ++i) {
      while (generations_.size() < 4 || chance(0.15)) arrive();
      if (chance(0.02)) scheduler_->abort(pick(1, static_cast<int>(next_id_)));
      if (launched_ - collected_ < 2 && !(launched_ > collected_ && chance(0.1))) plan();
      if (launched_ - collected_ == 2 || (launched_ > collected_ && chance(0.1))) collect();
    }
  }
  uint64_t plain = 0, other = 0, late = 0;  // rows; plain ones after others

 private:
  int pick(int low, int high) { return std::uniform_int_distribution<int>(low, high)(rng_); }
  bool chance(double p) { return std::uniform_real_distribution<double>(0, 1)(rng_) < p; }

  sched::SchedulerConfig config() {
    sched::SchedulerConfig c;
    c.v1 = chance(0.5);
    c.block_size = pick(1, 6);
    c.max_num_seqs = kSeqs, c.max_num_batched_tokens = pick(kSeqs, kTokens), c.max_model_len = kLength;
    c.max_logit_rows = kSeqs + 1;
    c.prealloc_dec_block_slot_num_threshold = pick(0, 6), c.enc_dec_block_num = pick(1, 3);
    c.reserve_output_blocks = 0;
    blocks_ = kLength / c.block_size + 1 + (chance(0.5) ? pick(0, 80) : 500);  // too few for all, or enough
    return c;
  }

  void arrive() {
    auto g = std::make_unique<Generation>();
    g->id = g->request.id = ++next_id_;
    for (int i = pick(1, 30); i > 0; --i) g->request.prompt.push_back(pick(1, 3));
    g->prompt = static_cast<int>(g->request.prompt.size());
    g->min_tokens = chance(0.3) ? pick(1, 20) : 0;
    g->rope_delta = chance(0.3) ? pick(-g->prompt, 9) : 0;
    g->guided = chance(0.05);
    if (chance(0.1)) g->scored = true, g->request.sampling.logprobs = pick(-1, 2);
    g->processors = static_cast<uint32_t>(pick(0, 15)) << 1 | (g->guided ? sample::kMask : 0u);
    g->thought = true;
    if (g->min_tokens > 0) g->processors |= sample::kMinTokens;
    sched::NewSequence s;
    s.id = g->id, s.prompt = g->request.prompt;
    s.max_new_tokens = g->max_tokens = pick(1, kLength - g->prompt);
    ASSERT_TRUE(scheduler_->add(std::move(s)).ok());
    generations_.emplace(g->id, std::move(g));
  }

  // As the engine does with rows that are not plain.
  void add(Step& step, size_t i) {
    const sched::PlanRow& row = step.plan.rows[i];
    Generation* g = slot_owners_[static_cast<size_t>(row.slot)].generation;
    step.rows[i] = {.generation = g};
    const auto view = scheduler_->row(i);
    step.add_row(row, {view.tokens, view.blocks, config_.block_size, g->prompt, {}, g->rope_delta});
    if (!row.samples) return;
    ops::SampleRow sample;
    sample.logit_row = row.logit_begin + row.logit_count - 1, sample.slot = row.slot;
    sample.position = row.first + row.count, sample.generated = sample.position - g->prompt;
    uint32_t bits = g->processors;
    if (sample.generated >= g->min_tokens) bits &= ~static_cast<uint32_t>(sample::kMinTokens);
    step.rows[i].sample_row = step.sampling.add(sample, bits);
    const int sample_row = step.rows[i].sample_row;
    if (g->guided) step.rows[i].mask = step.masks.add(static_cast<int>(i), sample_row, step.sampling.mask(sample_row));
    if (g->request.sampling.logprobs < 0) return;
    step.rows[i].logprobs = step.sampling.requests();
    step.sampling.add_logprobs(sample, g->request.sampling, bits);
  }

  void plan() {
    Step &fast = *fast_[launched_ % 2], &slow = *slow_[launched_ % 2];
    scheduler_->plan(fast.plan);
    if (fast.plan.empty()) return;
    slow.plan = fast.plan;
    for (const sched::Admission& a : fast.plan.admitted) {
      slot_owners_[static_cast<size_t>(a.slot)] = owner_of(*generations_.at(a.seq));
    }
    fast.begin(), slow.begin();
    const size_t count = fast.plan.rows.size();
    for (size_t i = 0; i < count; ++i) add(slow, i);
    for (size_t i = 0; i < count; ++i) {
      const size_t next = fast.add_plain_rows(i, slot_owners_, config_.block_size, *scheduler_);
      plain += next - i, late += i > 0 ? next - i : 0;
      i = next;
      if (i < count) add(fast, i), ++other;
    }
    fast.finish(), slow.finish();
    compare(fast, slow);
    if (!testing::Test::HasFailure()) check_inputs(fast);
    ++launched_;
  }

  void compare(Step& fast, Step& slow) {
    ASSERT_EQ(fast.batch.rows, slow.batch.rows);
    ASSERT_EQ(fast.batch.tokens, slow.batch.tokens);
    ASSERT_EQ(fast.batch.logit_rows, slow.batch.logit_rows);
    EXPECT_EQ(fast.batch.max_query_len, slow.batch.max_query_len);
    EXPECT_EQ(fast.batch.max_context_len, slow.batch.max_context_len);
    EXPECT_EQ(fast.sampling.count(), slow.sampling.count());
    EXPECT_EQ(fast.sampling.processors(), slow.sampling.processors());
    EXPECT_EQ(fast.sampling.logit_rows(), slow.sampling.logit_rows());
    EXPECT_EQ(fast.masks.size(), slow.masks.size());
    for (size_t i = 0; i < slow.plan.rows.size(); ++i) {
      const StepRow &f = fast.rows[i], &s = slow.rows[i];
      EXPECT_EQ(f.generation, s.generation);
      EXPECT_EQ(f.sample_row, s.sample_row);
      EXPECT_EQ(f.logprobs, s.logprobs);
      EXPECT_TRUE(f.prompt_logprobs == -1 && f.prompt_scored == 0);
    }
    const StepShape shape{pick(fast.batch.tokens, kTokens), kSeqs};
    const bool graph = shape.tokens >= shape.rows && chance(0.7), held = chance(0.2);
    std::array<std::string, 2> sent;
    for (size_t i = 0; i < 2; ++i) {
      Step& step = i == 0 ? fast : slow;
      sample::CopyList list;
      if (graph) {
        step.pad(shape);
        held ? step.sampling.hold_back(kSeqs) : step.sampling.pad(kSeqs);
        step.list_inputs(shape, kSeqs, list);
        sent[i] = bytes(list);
        list = {};
        if (held) step.sampling.upload_late(list);
        sent[i] += bytes(list);
        ASSERT_TRUE(step.upload_rest(device_, device_.stream()).ok());
      }
    }
    EXPECT_EQ(sent[0], sent[1]);
    EXPECT_EQ(whole(fast), whole(slow));
  }

  // What a step sends without a graph, as the device has it then.
  std::string whole(const Step& step) {
    EXPECT_TRUE(step.upload(device_, device_.stream()).ok());
    const model::Batch& b = step.batch;
    std::string all;
    const auto take = [&](const TensorView& t, size_t width) {
      const auto rows = static_cast<int64_t>(t.rank == 2 ? t.dim[0] : 1), n = t.dim[t.rank == 2 ? 1 : 0];
      for (int64_t r = 0; r < rows; ++r) {
        all.append(static_cast<const char*>(t.rank == 2 ? t.row_bytes(r) : t.data), static_cast<size_t>(n) * width);
      }
    };
    for (const TensorView* t :
         {&b.token_ids, &b.token_source, &b.positions, &b.row_start, &b.context_len, &b.logit_index}) {
      take(*t, 4);
    }
    take(b.slot_mapping, 8);
    if (!b.picture_row.empty()) take(b.picture_row, 4);
    return all;
  }

  // Against the scheduler alone; whole() has brought the arrays of the slow step, which are equal, to the device.
  void check_inputs(const Step& fast) {
    ASSERT_TRUE(fast.upload(device_, device_.stream()).ok());
    const model::Batch& b = fast.batch;
    for (int r = 0; r < b.rows; ++r) {
      const sched::PlanRow& row = fast.plan.rows[static_cast<size_t>(r)];
      const std::span<const int32_t> blocks = scheduler_->blocks(row.seq);
      const int end = row.first + row.count, used = (end + config_.block_size - 1) / config_.block_size;
      const auto* table = reinterpret_cast<const int32_t*>(b.block_table.row_bytes(r));
      EXPECT_TRUE(std::equal(table, table + used, blocks.begin())) << "row " << r;
      EXPECT_EQ(b.context_len.as<int32_t>()[r], end);
      const int32_t t = b.row_start.as<int32_t>()[r + 1] - 1;
      EXPECT_EQ(b.slot_mapping.as<int64_t>()[t],
                int64_t{blocks[static_cast<size_t>(used - 1)]} * config_.block_size + (end - 1) % config_.block_size);
    }
  }

  void collect() {
    const Step& step = *fast_[collected_ % 2];
    std::vector<std::vector<int32_t>> tokens;
    std::vector<sched::Scheduler::RowResult> results;
    tokens.reserve(step.plan.rows.size());
    for (const sched::PlanRow& row : step.plan.rows) {
      if (!row.samples) continue;
      const auto known = static_cast<int>(scheduler_->tokens(row.seq).size());
      const Generation& g = *generations_.at(row.seq);
      const int want = chance(0.03) ? 0 : (chance(0.03) ? 2 : 1);
      tokens.emplace_back(static_cast<size_t>(std::min(want, g.prompt + g.max_tokens - known)), pick(1, 3));
      results.push_back({row.seq, tokens.back(), chance(0.01)});
    }
    scheduler_->collect(results);
    ++collected_;
  }
  std::mt19937 rng_;
  int blocks_ = 0;
  sched::SchedulerConfig config_;
  cache::BlockPool pool_;
  cache::PrefixIndex index_;
  std::unique_ptr<sched::Scheduler> scheduler_;
  GraphDevice device_;
  model::BatchLimits limits_;
  float picture_memory_[4] = {};
  TensorView pictures_;
  std::array<std::unique_ptr<Step>, 2> fast_, slow_;
  std::array<SlotOwner, kSeqs> slot_owners_;
  std::map<RequestId, std::unique_ptr<Generation>> generations_;
  RequestId next_id_ = 0;
  uint64_t launched_ = 0, collected_ = 0;
};

TEST(StepRows, PlainRowsAreWhatRowsAre) {
  uint64_t plain = 0, other = 0, late = 0;
  for (uint32_t seed = 1; seed <= 200 && !HasFailure(); ++seed) {
    StepRows rows(seed);
    rows.run(400);
    plain += rows.plain, other += rows.other, late += rows.late;
    if (HasFailure()) ADD_FAILURE() << "seed " << seed;
  }
  EXPECT_GT(plain, 50'000u);
  EXPECT_GT(other, 10'000u);
  EXPECT_GT(late, 1000u);
}

}  // namespace
}  // namespace tern::engine
