// A rank: one thread that owns a device's stream and runs submissions in order. A step is two of them, forward and
// sample; between them the sampling may wait for host masks. A step with pictures to encode has a third in front.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

#include "device/arena.h"
#include "device/device.h"
#include "engine/step.h"
#include "engine/vision_stage.h"
#include "model/model.h"
#include "sample/sampler.h"

namespace tern::engine {

class Rank {
 public:
  struct Parts {
    const model::Model* model = nullptr;
    device::Device* device = nullptr;
    const model::KvCache* cache = nullptr;
    sample::Sampler* sampler = nullptr;
    VisionStage* vision = nullptr;  // null: no tower
    device::Buffer workspace;
    TensorView logits;  // [max_logit_rows, vocabulary] f32
  };
  // `done` is called by the rank's thread after every finished step, without a lock held.
  Rank(Parts parts, void (*done)(void*), void* context);
  ~Rank();  // finishes what was submitted

  // Encodes the step's pictures; before submit_forward of the same step, which waits for it.
  void submit_vision(Step* step);
  // `previous`: the step launched before, whose sampled ids this one reads; null for the first.
  void submit_forward(Step* step, const Step* previous);
  void submit_sample(Step* step);
  // Steps finished so far; their results may be read.
  uint64_t finished() const;

 private:
  enum class Kind : uint8_t { kVision, kForward, kSample };
  struct Submission {
    Kind kind = Kind::kForward;
    Step* step = nullptr;
    const Step* previous = nullptr;
  };
  static constexpr size_t kDepth = 8;  // two steps of three submissions, and room

  void submit(Submission submission);
  void run();
  Status run(const Submission& s);
  Status forward(Step& step, const Step* previous);
  Status sample(Step& step);

  Parts parts_;
  void (*done_)(void*);
  void* context_;
  mutable std::mutex mutex_;
  std::condition_variable submitted_;
  Submission queue_[kDepth];
  size_t head_ = 0, count_ = 0;
  uint64_t finished_ = 0;
  bool stopping_ = false;
  bool failed_ = false;  // of the thread
  std::thread thread_;
};

}  // namespace tern::engine
