// The engine behind engine.h: its thread's loop over the parts beside this file. CONTRACT.md says who may write what.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "engine/engine.h"
#include "engine/loop/engine_parts.h"
#include "engine/loop/inbox.h"
#include "engine/loop/open_requests.h"
#include "engine/loop/open_steps.h"
#include "engine/loop/orders.h"
#include "engine/loop/pictures.h"
#include "engine/loop/step_builder.h"
#include "engine/loop/step_results.h"
#include "engine/masks/guidance.h"
#include "engine/outbox.h"
#include "engine/ranks/rank.h"

namespace tern::engine {

class EngineImpl final : public Engine {
 public:
  EngineImpl(EngineParts parts, StepRunner runner);
  ~EngineImpl() override;

  Status submit(Request request) override { return inbox_.submit(std::move(request)); }
  void abort(RequestId id) override { inbox_.abort(id); }
  bool poll(std::vector<Delta>& out, std::chrono::milliseconds timeout) override { return outbox_.poll(out, timeout); }
  EngineStats stats() const override {
    EngineStats stats = inbox_.stats();
    stats.busy_since_ns = busy_since_ns_.load(std::memory_order_relaxed);
    return stats;
  }
  bool healthy() const override { return inbox_.healthy(); }
  std::future<Status> control(ControlOrder order) override { return inbox_.order(std::move(order)); }
  void shutdown(bool now) override { inbox_.shutdown(now); }
  std::vector<Hash128> prefix_hashes(const Request& request) const override;
  int64_t cached_tokens(std::span<const Hash128> hashes) const override;
  BlockNumbers blocks() const override { return parts_.blocks; }

 private:
  void run();
  void take_commands();
  bool launch();
  bool plan(Step& step, int64_t now);
  void ask_masks(Step& step, bool last);
  void collect();
  void publish();
  void wait_for_event();
  void prefetch_ahead() const;
  void watch(int64_t now);
  void die(const std::string& why);
  bool has_work() const { return !orders_.paused() && !requests_.empty() && !outbox_.full(); }
  Lockstep* lockstep() const { return parts_.config.data_parallel.lockstep; }
  bool may_end() const;
  bool idle() const { return hung_ || (requests_.empty() && open_.none()); }
  void trace(StepPhase phase, const Step& step, uint64_t n, int64_t begin_ns);

  EngineParts parts_;
  Outbox outbox_;
  Inbox inbox_;
  std::atomic<int64_t> busy_since_ns_{0};  // EngineStats::busy_since_ns

  // Of the engine thread alone.
  std::unique_ptr<Guidance> guidance_;  // null: no masks
  News news_;
  OpenSteps open_;
  Pictures pictures_;
  OpenRequests requests_;
  Orders orders_;
  StepBuilder builder_;
  StepResults results_;
  Inbox::Commands commands_;
  bool dead_ = false;
  bool hung_ = false;         // the device does not answer: open steps are never collected
  int64_t watchdog_ns_ = 0;   // 0: none
  uint64_t allocations_ = 0;  // of the device when the engine was ready
  std::unique_ptr<Rank> rank_;
  std::thread thread_;
};

}  // namespace tern::engine
