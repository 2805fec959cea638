#include "engine/ranks/rank_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/thread_pool.h"

namespace tern::engine {

RankGroup::RankGroup(device::CommunicatorGroup& group, std::span<const RankModel> ranks, Lockstep* lockstep)
    : group_(group), lockstep_(lockstep), parts_(ranks.size()), statuses_(ranks.size()) {
  for (size_t r = 1; r < ranks.size(); ++r) {
    threads_.emplace_back([this, r, device = ranks[r].device] { run(r, *device); });
  }
}

Expected<std::unique_ptr<RankGroup>> RankGroup::create(std::span<const RankModel> ranks,
                                                       device::CommunicatorGroup& group,
                                                       const RankPart::Shared& shared) {
  std::unique_ptr<RankGroup> g(new RankGroup(group, ranks, shared.lockstep));
  TERN_RETURN_IF_ERROR(g->each([&](size_t r) -> Status {
    TERN_ASSIGN_OR_RETURN(g->parts_[r], RankPart::create(ranks[r], group.of(static_cast<int>(r)), shared));
    return {};
  }));
  return g;
}

void RankGroup::let_go() {
  group_.fail();
  if (lockstep_ != nullptr) lockstep_->fail();
}

RankGroup::~RankGroup() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  given_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

Status RankGroup::forward(Step& step, const Step* previous, VisionStage* vision) {
  const StepGraphs* const graphs = parts_[0]->graphs();
  const int graph = graphs == nullptr ? -1 : graphs->fit(step);
  step.replayed = graph >= 0;
  sample::SamplingDeal::owners(step.sampling, static_cast<int>(parts_.size()), step.owners());
  return all([&](RankPart& part) { return part.forward(step, previous, graph, vision); });
}

Status RankGroup::sample(Step& step) {
  const StepGraphs* const graphs = parts_[0]->graphs();
  const StepGraphs::Sampling graph = graphs == nullptr ? StepGraphs::Sampling{} : graphs->fit(step.sampling);
  return all([&](RankPart& part) { return part.sample(step, graph); });
}

bool RankGroup::done(const Step& step) {
  bool all = true;
  for (const auto& part : parts_) {
    if (!part->done(step)) {
      all = false;
    } else if (!part->ended(step).ok()) {
      let_go();
    }
  }
  return all;
}

Status RankGroup::finish(Step& step) {
  for (const auto& part : parts_) TERN_RETURN_IF_ERROR(part->ended(step));
  for (const auto& part : parts_) part->give(step);
  return {};
}

Status RankGroup::load_kernels() {
  return all([](RankPart& part) { return part.device().load_kernels(); });
}

Status RankGroup::capture(const GraphConfig& config, int max_context_len) {
  const int64_t begin = monotonic_ns();
  const size_t before = memory_available();
  TERN_RETURN_IF_ERROR(all([&](RankPart& part) { return part.make_graphs(config, max_context_len); }));
  const StepGraphs* const graphs = parts_[0]->graphs();
  if (graphs == nullptr) return {};
  Step& idle = parts_[0]->idle_step();
  const auto ranks = static_cast<int>(parts_.size());
  for (const StepShape& shape : graphs->shapes().shapes()) {
    idle.fill_idle(shape);
    sample::SamplingDeal::owners(idle.sampling, ranks, idle.owners());
    const Status status = all([&](RankPart& part) { return part.capture_forward(shape); });
    if (!status.ok()) return capture_error(status.error());
  }
  idle.begin();
  for (const uint32_t processors : graphs->processor_sets()) {
    for (const int count : graphs->shapes().samples()) {
      const Status status = all([&](RankPart& part) { return part.capture_sampling(processors, count); });
      if (!status.ok()) return capture_error(status.error());
    }
  }
  const size_t after = memory_available();
  graphs->log(begin, before > after ? before - after : 0);
  return {};
}

Status RankGroup::grow(int64_t blocks) {
  return all([&](RankPart& part) { return part.cache().grow(blocks); });
}

Status RankGroup::give_back() {
  return all([](RankPart& part) { return part.cache().give_back(); });
}

Status RankGroup::synchronize() {
  return all([](RankPart& part) { return part.synchronize(); });
}

size_t RankGroup::memory_available() {
  std::vector<size_t> bytes(parts_.size());
  (void)each([&](size_t rank) {
    bytes[rank] = parts_[rank]->device().memory_available();
    return Status();
  });
  return *std::min_element(bytes.begin(), bytes.end());
}

void RankGroup::give(const Work& work) {
  {
    const std::lock_guard lock(mutex_);
    work_ = work;
    ++number_;
    busy_ = threads_.size();
  }
  given_.notify_all();
}

Status RankGroup::settle(Status first) {
  if (!first.ok()) let_go();
  {
    std::unique_lock lock(mutex_);
    done_.wait(lock, [&] { return busy_ == 0; });
  }
  statuses_[0] = std::move(first);
  return first_failure();
}

// Who failed says why; that others waited for it in vain says nothing.
Status RankGroup::first_failure() const {
  const Status* found = &statuses_[0];
  const auto says_more = [](const Status& s) { return !s.ok() && s.error().code != ErrorCode::kUnavailable; };
  for (const Status& s : statuses_) {
    if (!s.ok() && (found->ok() || (!says_more(*found) && says_more(s)))) found = &s;
  }
  return found->ok() ? Status() : Status(Error(found->error()));
}

void RankGroup::run(size_t rank, device::Device& device) {
  set_thread_name(fmt::format("rank-{}", rank));
  const Status ready = device.bind_thread();
  for (uint64_t seen = 0;; ++seen) {
    Work work;
    {
      std::unique_lock lock(mutex_);
      given_.wait(lock, [&] { return number_ > seen || stopping_; });
      if (number_ == seen) return;
      work = work_;
    }
    Status status = ready.ok() ? work.function(work.self, rank) : Status(Error(ready.error()));
    if (!status.ok()) let_go();
    const std::lock_guard lock(mutex_);
    statuses_[rank] = std::move(status);
    if (--busy_ == 0) done_.notify_one();
  }
}

}  // namespace tern::engine
