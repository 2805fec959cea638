#include "engine/loop/engine_impl.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/thread_pool.h"
#include "engine/loop/request_check.h"
#include "engine/ranks/lockstep.h"
#include "sched/sequence.h"

namespace tern::engine {
namespace {

// How often a wait for a step asks for what comes after it: caches lose that within a long step, to other programs too,
// and planning would wait for memory.
constexpr int64_t kPrefetchNs = 500'000;

size_t open_requests(const EngineConfig& c) { return c.inbox_capacity + static_cast<size_t>(c.scheduler.max_num_seqs); }

EngineStats fixed_stats(const EngineParts& parts) {
  EngineStats s;
  s.max_num_seqs = parts.config.scheduler.max_num_seqs;
  s.capacity = static_cast<int>(open_requests(parts.config));
  s.total_blocks = s.free_blocks = s.usable_blocks = parts.blocks.total;
  return s;
}

std::unique_ptr<Guidance> make_guidance(const EngineParts& parts) {
  if (parts.config.mask_threads == 0) return nullptr;
  return std::make_unique<Guidance>(parts.config.mask_threads, static_cast<size_t>((parts.sampled_vocab + 31) / 32));
}

}  // namespace

EngineImpl::EngineImpl(EngineParts parts, StepRunner runner)
    : parts_(std::move(parts)),
      outbox_(parts_.config.outbox_capacity),
      inbox_(open_requests(parts_.config), fixed_stats(parts_)),
      guidance_(make_guidance(parts_)),
      open_(parts_.steps),
      pictures_(parts_),
      requests_(parts_, open_, pictures_, guidance_.get(), news_),
      orders_(parts_, runner.parts().group.get(), requests_, open_),
      builder_(parts_, requests_, pictures_),
      results_(parts_, open_, requests_, pictures_, guidance_.get(), news_) {
  const auto rows = static_cast<size_t>(parts_.config.scheduler.max_num_seqs);
  news_.reserve(std::max(2 * rows, outbox_.expected()));
  outbox_.on_drained([](void* inbox) { static_cast<Inbox*>(inbox)->wake(); }, &inbox_);
  outbox_.tell(parts_.config.data_parallel.news);
  // Work that is done when it has been given may take its time.
  if (parts_.device->own_memory()) watchdog_ns_ = std::max<int64_t>(parts_.config.watchdog_ns, 0);
  rank_ = std::make_unique<Rank>(
      std::move(runner), Rank::Faults{parts_.config.fault, parts_.config.fault_step, parts_.config.fault_rank},
      [](void* inbox) { static_cast<Inbox*>(inbox)->step_done(); }, &inbox_);
  allocations_ = parts_.device->allocations();
  if (lockstep() != nullptr) {
    lockstep()->join(
        parts_.config.data_parallel.rank, [](void* inbox) { static_cast<Inbox*>(inbox)->wake(); }, &inbox_);
  }
  thread_ = std::thread([this] { run(); });
}

EngineImpl::~EngineImpl() {
  shutdown(true);
  thread_.join();
  if (lockstep() != nullptr) lockstep()->leave(parts_.config.data_parallel.rank);
}

void EngineImpl::run() {
  const DataParallel& dp = parts_.config.data_parallel;
  set_thread_name(dp.size > 1 ? fmt::format("engine-{}", dp.rank) : "engine");
  for (;;) {
    busy_since_ns_.store(monotonic_ns(), std::memory_order_relaxed);
    take_commands();
    orders_.settle();
    while (launch()) {
    }
    watch(monotonic_ns());
    if (commands_.steps_done > open_.collected() && !hung_) {
      collect();
      publish();
      continue;
    }
    publish();
    if (commands_.stopping && idle() && may_end()) break;
    // Where no watchdog looks after steps, waiting for one is part of the turn.
    if (open_.none() || watchdog_ns_ > 0) busy_since_ns_.store(0, std::memory_order_relaxed);
    wait_for_event();
  }
  orders_.fail(make_error(ErrorCode::kUnavailable, "the engine has ended"));
  inbox_.close();
  outbox_.close();
}

void EngineImpl::take_commands() {
  inbox_.take(commands_);
  size_t entered = 0;
  const auto enter_up_to = [&](size_t count) {
    for (; entered < count; ++entered) requests_.enter(std::move(commands_.requests[entered]));
  };
  for (Inbox::Order& order : commands_.orders) {
    enter_up_to(order.behind);
    orders_.take(std::move(order));
  }
  commands_.orders.clear();
  enter_up_to(commands_.requests.size());
  commands_.requests.clear();
  for (RequestId id : commands_.aborts) requests_.abort(id);
  commands_.aborts.clear();
  if (commands_.ending || (commands_.stopping && orders_.paused())) requests_.end_all(FinishReason::kAbort, {});
  if (requests_.next_deadline() != 0) requests_.expire(monotonic_ns());
}

// False: there is nothing to run.
bool EngineImpl::plan(Step& step, int64_t now) {
  parts_.scheduler->plan(step.plan);
  for (sched::SeqId id : step.plan.preempted) {
    Generation* g = requests_.find(id);
    if (g == nullptr) continue;
    ++g->preemptions;
    g->interruptions.push_back({now, 0});
  }
  return !step.plan.empty();
}

// Plans and submits one more step. False when two are open, nothing can run, or the reader is too far behind. Where
// engines share experts, another's step takes one of this engine, if need be an empty one: not while a step is open,
// whose rows the next plan is about.
bool EngineImpl::launch() {
  if (open_.full() || dead_) return false;
  const int64_t begin = monotonic_ns();
  Step& step = open_.next();
  if (!has_work() || !plan(step, begin)) {
    if (lockstep() == nullptr || !open_.none() || !lockstep()->behind(parts_.config.data_parallel.rank)) return false;
    step.plan.clear();
  }
  if (const int64_t delay = parts_.config.plan_delay_ns; delay > 0) {
    std::this_thread::sleep_for(std::chrono::nanoseconds(delay));
  }
  builder_.fill(step, begin);
  if (step.masks.size() > 0) ask_masks(step, open_.none());
  if (pictures_.pack(step)) rank_->submit_vision(&step);
  rank_->submit_forward(&step, open_.last());
  open_.launch();
  rank_->submit_sample(&step);
  if (lockstep() != nullptr) lockstep()->launched(parts_.config.data_parallel.rank, open_.launched());
  trace(StepPhase::kPlan, step, open_.launched() - 1, begin);
  return true;
}

// It is told to stop and has nothing to do: others may still need its experts.
bool EngineImpl::may_end() const {
  return lockstep() == nullptr || lockstep()->may_end(parts_.config.data_parallel.rank);
}

// `last`: no step before this one is open, so that whatever is to be known of its rows is known.
void EngineImpl::ask_masks(Step& step, bool last) {
  for (MaskRow& mask : step.masks.rows()) {
    const auto i = static_cast<size_t>(mask.step_row);
    Generation& g = *step.rows[i].generation;
    const sched::PlanRow& row = step.plan.rows[i];
    guidance_->ask(g, mask, row.first + row.count - g.prompt, last);
  }
  guidance_->flush();
}

// The oldest open step is done.
void EngineImpl::collect() {
  const int64_t now = monotonic_ns();
  Step& step = open_.oldest();
  if (!step.status.ok() && !dead_) die(fmt::format("step {} failed: {}", step.plan.step, step.status.error().message));
  if (step.rows.empty()) {
    open_.collect();
  } else {
    results_.collect(step, now);
  }
  trace(StepPhase::kCollect, step, open_.collected() - 1, now);
  if (!open_.none() && open_.oldest().masks.size() > 0) ask_masks(open_.oldest(), true);
}

void EngineImpl::publish() {
  const sched::SchedulerStats s = parts_.scheduler->stats();
  EngineStats stats = fixed_stats(parts_);
  stats.running = s.running, stats.waiting = s.waiting, stats.preempted_waiting = s.preempted_waiting;
  stats.free_blocks = s.free_blocks, stats.usable_blocks = s.usable_blocks;
  stats.steps = open_.collected(), stats.graph_steps = open_.replayed();
  stats.prompt_tokens = builder_.prompt_tokens(), stats.generated_tokens = results_.generated_tokens();
  stats.preemptions = s.preemptions;
  stats.open_tokens = requests_.known_tokens(stats.generated_tokens);
  stats.late_allocations = parts_.device->allocations() - allocations_;
  stats.prefix_lookup_tokens = s.prefix_lookup_tokens, stats.prefix_hit_tokens = s.prefix_hit_tokens;
  stats.prefix_lookups = s.prefix_lookups, stats.prefix_hits = s.prefix_hits;
  pictures_.report(stats);
  inbox_.publish(stats, requests_.size(), !dead_);
  outbox_.publish(news_);  // after the figures: who reads of an end finds it counted
}

void EngineImpl::wait_for_event() {
  const bool working = !dead_ && !open_.none();
  const int64_t hangs_at = open_.oldest_since() + watchdog_ns_;
  int64_t until = requests_.next_deadline();  // 0: none
  if (working && watchdog_ns_ > 0 && (until == 0 || hangs_at < until)) until = hangs_at;
  const bool prefetching = parts_.device->own_memory() && working;
  while (prefetching && (until == 0 || monotonic_ns() + kPrefetchNs < until)) {
    if (inbox_.wait_for(kPrefetchNs)) return;
    prefetch_ahead();
  }
  if (until == 0) {
    inbox_.wait();
  } else if (const int64_t left = until - monotonic_ns(); left > 0) {
    inbox_.wait_for(left);
  }
}

// Most of what collecting the oldest step and planning the next one touch; sequences are not among it.
void EngineImpl::prefetch_ahead() const {
  open_.next().prefetch();
  for (const StepRow& row : open_.oldest().rows) engine::prefetch(*row.generation, 3);
}

// The oldest open step must end in time. Nothing of it or of the one after it is touched afterwards: the device may
// still be at them.
void EngineImpl::watch(int64_t now) {
  if (watchdog_ns_ == 0 || dead_ || open_.none() || commands_.steps_done > open_.collected()) return;
  if (now - open_.oldest_since() < watchdog_ns_) return;
  hung_ = true;
  rank_->abandon();
  die(fmt::format("step {} has not ended after {:.1f} s: the device hangs", open_.oldest().plan.step,
                  static_cast<double>(watchdog_ns_) / 1e9));
}

// The device's state is unknown from here on: no further step, and an error for everyone.
void EngineImpl::die(const std::string& why) {
  dead_ = true;
  const DataParallel& dp = parts_.config.data_parallel;
  const std::string who = dp.size > 1 ? fmt::format("engine {}", dp.rank) : "the engine";
  TERN_ERROR("{}{}", dp.size > 1 ? who + ": " : "", why);
  const Error error = make_error(ErrorCode::kInternal, fmt::format("{} failed: {}", who, why));
  requests_.fail(error);
  orders_.fail(error);
}

// As Scheduler::add will hash it.
std::vector<Hash128> EngineImpl::prefix_hashes(const Request& r) const {
  std::vector<Hash128> hashes;
  const sched::SchedulerConfig& c = parts_.config.scheduler;
  if (parts_.names == nullptr || !c.prefix_caching || r.sampling.prompt_logprobs >= 0) return hashes;
  if (r.pooled != PooledRows::kLast) return hashes;
  if (!check_places(r, parts_).ok()) return hashes;  // refused later, and said why
  const int blocks = static_cast<int>(r.prompt.size()) / c.block_size;
  sched::extend_hashes(hashes, r.prompt, prompt_keys(r, parts_.index->key()).extra, parts_.index->key(), c.block_size,
                       blocks);
  return hashes;
}

int64_t EngineImpl::cached_tokens(std::span<const Hash128> hashes) const {
  if (parts_.names == nullptr) return 0;
  return int64_t{parts_.names->peek(hashes)} * parts_.config.scheduler.block_size;
}

void EngineImpl::trace(StepPhase phase, const Step& step, uint64_t n, int64_t begin_ns) {
  if (parts_.config.trace == nullptr) return;
  StepSpan span;
  span.phase = phase, span.step = n;
  span.tokens = step.plan.tokens, span.rows = static_cast<int32_t>(step.rows.size());
  span.begin_ns = begin_ns, span.end_ns = monotonic_ns();
  parts_.config.trace->add(span);
}

}  // namespace tern::engine
