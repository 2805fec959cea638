// Several ranks of one model: rank 0 is the engine's (step_runner.h); the others are here, a thread each, which does
// what rank 0 does, in its order. They read rank 0's inputs and have a device side, a cache and logits of their own.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "device/communicator.h"
#include "engine/block_numbers.h"
#include "engine/engine.h"
#include "engine/step/step.h"
#include "model/model.h"
#include "sample/sampler.h"
#include "sample/sampling_deal.h"
#include "sample/staged.h"

namespace tern::engine {

// A rank's part of a step: of the model, and of what is drawn.
struct RankPart {
  const model::Model* model = nullptr;
  device::Device* device = nullptr;
  device::Communicator communicator;
  device::Buffer workspace, logits_memory, rows_memory;
  TensorView logits;              // [max_logit_rows, columns] f32: those of its part of the vocabulary
  int64_t first_column = 0;       // of them
  TensorView rows;                // [max_logit_rows, vocabulary] f32: of its slots
  sample::Staged<int32_t> owner;  // [max_logit_rows]: the rank of each logit row
  std::unique_ptr<sample::Sampler> sampler;
  std::unique_ptr<sample::SamplingDeal> deal;

  static Expected<RankPart> create(const RankModel& rank, const device::Communicator& communicator,
                                   const model::BatchLimits& limits, const sample::SamplerLimits& sampling);
  // Runs the model, then brings the logits of this rank's rows together.
  Status forward(const model::Batch& batch, const model::KvCache& cache) const;
  // Draws its rows; every rank then has all ids, and `whole` the other results.
  Status sample(sample::SamplingBatch& whole, int64_t logit_rows) const;
};

class RankGroup {
 public:
  struct Sizes {
    model::BatchLimits limits;
    sample::SamplerLimits sampling;
    int block_size = 0;
    int64_t blocks = 0;
    bool pictures = false;
  };
  // `ranks`: all of them, rank 0 included.
  static Expected<std::unique_ptr<RankGroup>> create(std::span<const RankModel> ranks, device::CommunicatorGroup& group,
                                                     const Sizes& sizes);
  ~RankGroup();

  // Rank 0's thread. Gives the others the same work and returns at once; `step` stays as it is until settle().
  void forward(Step& step);
  void sample(Step& step);
  // `status` is how rank 0 fared. Waits until all have done their work: a step is done when all ranks are. The first
  // failure of any; with one, those that wait for the failed rank are let go.
  Status settle(Status status);
  // The rank's next forward pass meets this fault.
  void inject(int rank, device::Fault fault);

  RankPart& first() { return first_; }
  int ranks() const { return first_.communicator.ranks; }

 private:
  enum class Kind : uint8_t { kForward, kSample };
  struct Work {
    Kind kind = Kind::kForward;
    Step* step = nullptr;
  };
  // A rank but the first, and its thread.
  struct Member {
    RankPart part;
    std::unique_ptr<CacheMemory> cache;
    StepInputs inputs;
    BlockTable table;
    device::Fault fault = device::Fault::kNone;
    Status status;  // of the work given last
    std::thread thread;
  };
  explicit RankGroup(device::CommunicatorGroup& group) : group_(group) {}
  Status add(const RankModel& rank, int number, const Sizes& sizes);
  void give(const Work& work);
  void run(Member& member);
  Status run(Member& member, const Work& work);

  device::CommunicatorGroup& group_;
  RankPart first_;  // its owner's host side is what all take theirs from
  std::vector<std::unique_ptr<Member>> members_;
  std::mutex mutex_;
  std::condition_variable given_, done_;
  Work work_;
  uint64_t number_ = 0;  // of the work given last
  size_t busy_ = 0;      // members that are at it
  bool stopping_ = false;
};

}  // namespace tern::engine
