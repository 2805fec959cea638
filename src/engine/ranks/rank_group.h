// Several ranks of one model, a thread each: rank 0's is the engine's rank (rank.h), the others' are here. All do the
// same work in the same order, each on its device; the host's side of a step is filled once and read by all of them.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "engine/ranks/rank_part.h"

namespace tern::engine {

class RankGroup {
 public:
  // `ranks`: all of them, by number; each part is made by its own thread.
  static Expected<std::unique_ptr<RankGroup>> create(std::span<const RankModel> ranks, device::CommunicatorGroup& group,
                                                     const RankPart::Shared& shared);
  ~RankGroup();

  // Rank 0's thread. They return when all ranks have given the work to their devices; `step` stays as it is until
  // finish(). The first failure of any rank; with one, those that wait for the failed rank are let go.
  Status forward(Step& step, const Step* previous, VisionStage* vision);
  Status sample(Step& step);
  // Whether all ranks are done with it. Where one has failed, the others are let go and will be done soon.
  bool done(const Step& step);
  // It is done: the first failure, or the results to where the engine reads them.
  Status finish(Step& step);
  // The rank's next forward pass meets this fault.
  void inject(int rank, device::Fault fault) { parts_[static_cast<size_t>(rank)]->inject(fault); }

  // At the start, by the thread that starts.
  Status load_kernels();
  Status capture(const GraphConfig& config, int max_context_len);
  Status grow(int64_t blocks);  // each cache; also while no step is open, as the next
  Status give_back();           // the memory of each cache
  Status synchronize();
  size_t memory_available();  // of the rank that has least

 private:
  // A call of `function`, with the rank and what `self` points to.
  struct Work {
    Status (*function)(const void* self, size_t rank) = nullptr;
    const void* self = nullptr;
  };
  RankGroup(device::CommunicatorGroup& group, std::span<const RankModel> ranks, Lockstep* lockstep);
  void let_go();  // who waits for a rank that has failed
  // Runs f(part) for all ranks at once, each on its thread; rank 0's is the caller's.
  template <class F>
  Status all(const F& f) {
    return each([&](size_t rank) { return f(*parts_[rank]); });
  }
  template <class F>
  Status each(const F& f) {
    give({[](const void* self, size_t rank) { return (*static_cast<const F*>(self))(rank); }, &f});
    return settle(f(0));
  }
  void give(const Work& work);
  Status settle(Status first);
  Status first_failure() const;
  void run(size_t rank, device::Device& device);

  device::CommunicatorGroup& group_;
  Lockstep* const lockstep_;                      // null: of this engine alone
  std::vector<std::unique_ptr<RankPart>> parts_;  // by rank
  std::vector<Status> statuses_;                  // of the work given last, by rank
  std::mutex mutex_;
  std::condition_variable given_, done_;
  Work work_;
  uint64_t number_ = 0;  // of the work given last
  size_t busy_ = 0;      // threads that are at it
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace tern::engine
