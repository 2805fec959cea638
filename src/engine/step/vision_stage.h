// The device side of pictures: the tower's inputs and temporaries at fixed addresses, and the rows of encoded pictures
// that forward passes read.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "device/device.h"
#include "engine/engine.h"
#include "engine/step/vision_step.h"
#include "sample/staged.h"

namespace tern::engine {

// What follows from the configuration, before anything is allocated.
struct VisionPlan {
  CallLimits call;
  int max_item_tokens = 0;
  int max_step_tokens = 0;  // rows that the pictures of one step can need
  int cache_rows = 0;       // of the encoder cache: two open steps and what is kept beside them
  size_t ints = 0, floats = 0;
  size_t workspace_bytes = 0;
  size_t total_bytes = 0;  // all of it, the cache included
};

// Errors (kInvalidArgument) name the flag or the limit. `budget`: --max-num-batched-tokens.
Expected<VisionPlan> plan_vision(const VisionConfig& config, const vision::Tower& tower, int budget, int model_hidden,
                                 device::Stream stream);

class VisionStage {
 public:
  static Expected<std::unique_ptr<VisionStage>> create(const VisionPlan& plan, const vision::Tower& tower,
                                                       device::Device& device);

  const VisionPlan& plan() const { return plan_; }
  const vision::Tower& tower() const { return *tower_; }
  // [cache_rows, hidden], for Batch::pictures.
  TensorView pictures() const { return pictures_; }

  // The rank's thread, on the vision stream. Launches tower calls of the step, as many as the staging buffers take
  // without waiting; true when all are launched, else it is to be called again for the same step.
  Expected<bool> advance(VisionStep& step);
  // What is given to `stream` from now on comes after all calls launched so far.
  Status wait(device::Stream stream);
  // Notes the time of calls that have ended (VisionStep::tower_ns).
  void look();
  // The step is done: calls look(), then forgets the step.
  void release(const VisionStep& step);

 private:
  // Inputs of a call on their way: pinned, free again when `sent` has passed. Both sets share one device side.
  struct Inputs {
    sample::Staged<std::byte> patches;
    sample::Staged<int32_t> ints, rows;
    sample::Staged<float> floats;
    std::unique_ptr<device::Event> sent;
  };
  struct Timed {
    VisionStep* step = nullptr;  // null: nothing to wait for
    std::unique_ptr<device::Event> end;
    int64_t begin = 0;
  };
  VisionStage(const VisionPlan& plan, const vision::Tower& tower, device::Device& device)
      : plan_(plan), tower_(&tower), device_(&device) {}
  Status make_inputs(Inputs& inputs, const Inputs* shares);
  Status run(const VisionStep& step, const VisionCall& call, Inputs& inputs, device::Stream stream);

  VisionPlan plan_;
  const vision::Tower* tower_;
  device::Device* device_;
  std::array<Inputs, 2> inputs_;
  std::array<Timed, 2> timed_;  // of the two steps that can be open
  uint64_t calls_ = 0, steps_ = 0;
  int next_call_ = 0;     // of the step that advance() has begun
  int64_t last_end_ = 0;  // of the calls before, by look()
  device::Buffer workspace_, out_, cache_;
  TensorView pictures_;
};

}  // namespace tern::engine
