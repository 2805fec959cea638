// The engine behind engine.h. CONTRACT.md says who may write what.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "engine/engine.h"
#include "engine/loop/engine_parts.h"
#include "engine/masks/guidance.h"
#include "engine/outbox.h"
#include "engine/step/rank.h"
#include "engine/stops.h"

namespace tern::engine {

class EngineImpl final : public Engine {
 public:
  EngineImpl(EngineParts parts, StepRunner runner);
  ~EngineImpl() override;

  Status submit(Request request) override;
  void abort(RequestId id) override;
  bool poll(std::vector<Delta>& out, std::chrono::milliseconds timeout) override { return outbox_.poll(out, timeout); }
  EngineStats stats() const override;
  bool healthy() const override;
  void shutdown(bool now) override;
  BlockNumbers blocks() const override { return parts_.blocks; }

 private:
  using Generations = std::unordered_map<RequestId, std::unique_ptr<Generation>>;

  // engine_run.cc: the loop.
  void run();
  void take_commands();
  void wait_for_event();
  void prefetch_ahead() const;
  void event();
  void publish();
  void publish_stats();
  bool idle() const { return hung_ || (generations_.empty() && launched_ == collected_); }
  void watch(int64_t now);
  void die(const std::string& why);
  // engine_intake.cc: requests come and go.
  Status check(Request& request) const;
  void enter(Request request);
  Status open(Generation& g);
  void refuse(const Request& request, Error error);
  void abort_one(RequestId id);
  void end_all(FinishReason reason, const Error& error);
  void expire(int64_t now);
  void end(Generation& g, FinishReason reason);
  void end_error(Generation& g, Error error);
  void forget(Generation& g);
  News::Event& event_of(const Generation& g);
  Generation* find(RequestId id);
  bool has_rows(const Generation& g, uint64_t step) const;
  // engine_launch.cc
  bool launch();
  void admit(Step& step);
  void build_row(Step& step, size_t i);
  void score_prompt(Step& step, size_t i, const Generation& g);
  void ask_sampler(Step& step, size_t i, const Generation& g);
  const SlotOwner& owner(const sched::PlanRow& row) const { return slot_owners_[static_cast<size_t>(row.slot)]; }
  void ask_masks(Step& step, bool last);
  void trace(StepPhase phase, const Step& step, uint64_t n, int64_t begin_ns);
  // engine_vision.cc
  Status check_media(const Request& request) const;
  Status check_positions(const Request& request) const;
  void add_media(const Request& request, Generation& g, sched::NewSequence& s) const;
  void take_media(Step& step, const sched::PlanRow& row, int first_token, Generation& g);
  int encoder_entry(Step& step, const MediaItem& item, const Hash128& key);
  void submit_media(Step& step);
  void collect_media(Step& step);
  void release_media(Generation& g, int computed);
  void forget_media(const Generation& g);
  // engine_collect.cc
  void collect();
  void take_prompt_logprobs(const Step& step, size_t i, Generation& g);
  void take_row(Step& step, size_t i, Generation& g, int64_t now);
  bool says_something(Step& step, size_t i, Generation& g, std::span<const int32_t>& forced);
  size_t take_tokens(const Step& step, size_t i, Generation& g, std::span<const int32_t> ids, int64_t now);
  void watch_thinking(Generation& g);
  FinishReason judge(Generation& g, float prob, StopHit& hit);
  void add_scores(const sample::SamplingBatch& batch, int request);

  EngineParts parts_;
  Outbox outbox_;

  // Shared, under mutex_.
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<Request> inbox_;
  std::vector<RequestId> aborts_;
  size_t open_ = 0;  // requests that have left the inbox and not ended, as of the last turn
  bool stopping_ = false, ending_ = false;
  uint64_t events_ = 0;      // grows with everything the engine thread should look at
  uint64_t steps_done_ = 0;  // by the rank
  bool healthy_ = true;
  EngineStats stats_;

  // Of the engine thread alone.
  Generations generations_;
  std::vector<SlotOwner> slot_owners_;  // by slot: who was admitted to it last
  std::vector<Request> taken_requests_;
  std::vector<RequestId> taken_aborts_;
  std::vector<Generation*> finished_;  // in this collect, to be forgotten
  std::vector<sched::Scheduler::RowResult> results_;
  std::vector<int32_t> result_tokens_;
  News news_;
  uint64_t seen_events_ = 0, seen_done_ = 0;
  bool seen_stopping_ = false, seen_ending_ = false, dead_ = false;
  bool hung_ = false;         // the device does not answer: open steps are never collected
  int64_t watchdog_ns_ = 0;   // 0: none
  int64_t oldest_since_ = 0;  // since when the oldest open step has been the oldest
  uint64_t allocations_ = 0;  // of the device when the engine was ready
  uint64_t launched_ = 0, collected_ = 0, replayed_ = 0;
  Step* last_launched_ = nullptr;
  int64_t next_deadline_ = 0;  // 0: none
  uint64_t prompt_tokens_ = 0, generated_tokens_ = 0;
  EngineStats media_stats_;  // its tower and encoder figures
  bool may_preempt_ = true;  // a running sequence can lose its blocks

  std::unique_ptr<Rank> rank_;
  std::unique_ptr<Guidance> guidance_;  // null: no masks
  std::thread thread_;
};

}  // namespace tern::engine
