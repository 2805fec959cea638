#include "engine/engines.h"

#include <fmt/format.h>

#include <algorithm>
#include <future>
#include <utility>

#include "base/hash.h"
#include "engine/placement.h"

namespace tern::engine {
namespace {

using Started = Expected<std::unique_ptr<Engine>>;

void add(EngineStats& sum, const EngineStats& s) {
  sum.running += s.running, sum.waiting += s.waiting, sum.preempted_waiting += s.preempted_waiting;
  sum.total_blocks += s.total_blocks, sum.free_blocks += s.free_blocks, sum.usable_blocks += s.usable_blocks;
  sum.max_num_seqs += s.max_num_seqs, sum.capacity += s.capacity;
  sum.open_tokens += s.open_tokens;
  sum.steps += s.steps, sum.graph_steps += s.graph_steps;
  sum.prompt_tokens += s.prompt_tokens, sum.generated_tokens += s.generated_tokens, sum.preemptions += s.preemptions;
  sum.prefix_lookup_tokens += s.prefix_lookup_tokens, sum.prefix_hit_tokens += s.prefix_hit_tokens;
  sum.prefix_lookups += s.prefix_lookups, sum.prefix_hits += s.prefix_hits;
  sum.tower_ns += s.tower_ns, sum.tower_calls += s.tower_calls;
  sum.tower_items += s.tower_items, sum.tower_patches += s.tower_patches;
  sum.encoder_lookups += s.encoder_lookups, sum.encoder_hits += s.encoder_hits;
  sum.late_allocations += s.late_allocations;
  sum.healthy = sum.healthy && s.healthy;
  // Of turns that last, the longest.
  if (s.busy_since_ns != 0 && (sum.busy_since_ns == 0 || s.busy_since_ns < sum.busy_since_ns)) {
    sum.busy_since_ns = s.busy_since_ns;
  }
}

// Spans say whose they are.
class NumberedTrace final : public StepTrace {
 public:
  NumberedTrace(StepTrace& next, int engine) : next_(next), engine_(engine) {}
  void add(const StepSpan& span) override {
    StepSpan numbered = span;
    numbered.engine = engine_;
    next_.add(numbered);
  }

 private:
  StepTrace& next_;
  const int32_t engine_;
};

Started start_one(const EngineConfig& config, const EnginePart& part) {
  TERN_RETURN_IF_ERROR(part.ranks[0].device->bind_thread());
  return Engine::start(config, part.ranks, part.group, part.tower);
}

// Engines of one host's memory begin one after the other, each with its share of what there was before the first.
std::vector<Started> start_all(const EngineConfig& config, std::span<const EnginePart> parts,
                               std::span<const std::unique_ptr<StepTrace>> traces) {
  const device::Device& device = *parts[0].ranks[0].device;
  const auto share = static_cast<size_t>(config.data_parallel.size);
  std::vector<std::future<Started>> starting;
  std::vector<Started> started;
  EngineConfig c = config;
  if (!device.own_memory() && share > 1) {
    c.data_parallel.memory_total = device.info().memory_total / share;
    c.data_parallel.memory_available = device.memory_available() / share;
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    c.data_parallel.rank = config.data_parallel.rank + static_cast<int>(i);
    if (!traces.empty()) c.trace = traces[i].get();
    c.fault = c.data_parallel.rank == config.fault_engine ? config.fault : device::Fault::kNone;
    if (!device.own_memory()) {
      started.push_back(Engine::start(c, parts[i].ranks, parts[i].group, parts[i].tower));
      continue;
    }
    starting.push_back(std::async(std::launch::async, [c, &part = parts[i]] { return start_one(c, part); }));
  }
  for (auto& engine : starting) started.push_back(engine.get());
  return started;
}

}  // namespace

Status Engines::submit(Request request) {
  const std::vector<Hash128> hashes = engines_[0]->prefix_hashes(request);  // all engines hash alike
  const std::lock_guard lock(placing_);
  std::vector<EngineLoad> loads;
  for (const auto& engine : engines_) {
    const EngineStats s = engine->stats();
    loads.push_back({.hit_tokens = engine->cached_tokens(hashes),
                     .open_tokens = s.open_tokens,
                     .open_requests = s.running + s.waiting + s.preempted_waiting,
                     .places = s.max_num_seqs,
                     .capacity = s.capacity});
  }
  return engines_[static_cast<size_t>(place_request(loads))]->submit(std::move(request));
}

// Who has it is not kept: ids that an engine does not know are nothing to it.
void Engines::abort(RequestId id) {
  for (const auto& engine : engines_) engine->abort(id);
}

bool Engines::poll(std::vector<Delta>& out, std::chrono::milliseconds timeout) {
  const size_t before = out.size();
  const auto until = std::chrono::steady_clock::now() + timeout;
  for (;;) {
    const uint64_t seen = news_->count();
    bool open = false;
    for (const auto& engine : engines_) open = engine->poll(out, std::chrono::milliseconds(0)) || open;
    if (out.size() > before || !open) return open;
    if (!news_->wait(seen, until)) return true;
  }
}

EngineStats Engines::stats() const {
  EngineStats sum;
  for (const auto& engine : engines_) add(sum, engine->stats());
  return sum;
}

std::vector<EngineStats> Engines::parts() const {
  std::vector<EngineStats> parts;
  for (const auto& engine : engines_) parts.push_back(engine->stats());
  return parts;
}

bool Engines::healthy() const {
  return std::all_of(engines_.begin(), engines_.end(), [](const auto& engine) { return engine->healthy(); });
}

std::future<Status> Engines::control(ControlOrder order) {
  std::vector<std::future<Status>> parts;
  for (const auto& engine : engines_) parts.push_back(engine->control(order));
  return std::async(std::launch::deferred, [parts = std::move(parts)]() mutable {
    Status first;
    for (auto& part : parts) {
      Status status = part.get();
      if (first.ok()) first = std::move(status);
    }
    return first;
  });
}

void Engines::shutdown(bool now) {
  for (const auto& engine : engines_) engine->shutdown(now);
}

Expected<std::unique_ptr<EngineClient>> start_engines(const EngineConfig& config, std::span<const EnginePart> parts) {
  const DataParallel& dp = config.data_parallel;
  if (config.fault != device::Fault::kNone && config.fault_engine >= dp.size) {
    return make_error(ErrorCode::kInvalidArgument,
                      fmt::format("TERN_FAULT: there is no engine {} of {}", config.fault_engine, dp.size),
                      "TERN_FAULT");
  }
  const auto news = std::make_shared<NewsSignal>();
  EngineConfig c = config;
  if (parts.size() > 1) {
    c.data_parallel.news = news.get();
    c.data_parallel.prefix_key = random_hash_key();
  }
  std::vector<std::unique_ptr<StepTrace>> traces;
  for (size_t i = 0; c.trace != nullptr && parts.size() > 1 && i < parts.size(); ++i) {
    traces.push_back(std::make_unique<NumberedTrace>(*c.trace, dp.rank + static_cast<int>(i)));
  }
  std::vector<std::unique_ptr<EngineClient>> engines;
  std::vector<Started> started = start_all(c, parts, traces);
  if (std::ranges::any_of(started, [](const Started& s) { return !s.ok(); })) {
    // Those that share experts end together.
    for (Started& engine : started) {
      if (engine.ok()) (*engine)->shutdown(true);
    }
  }
  for (Started& engine : started) {
    if (!engine.ok()) return std::move(engine).error();
    engines.push_back(std::move(engine).value());
  }
  if (engines.size() == 1) return std::move(engines[0]);
  return std::unique_ptr<EngineClient>(std::make_unique<Engines>(std::move(engines), news, std::move(traces)));
}

}  // namespace tern::engine
