// The device side of pictures: the tower's inputs and temporaries at fixed addresses, and the rows of encoded pictures
// that forward passes read.
#pragma once

#include <cstdint>
#include <memory>

#include "device/device.h"
#include "engine/engine.h"
#include "engine/vision_step.h"
#include "sample/staged.h"

namespace tern::engine {

// What the configuration comes to, before anything is allocated.
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

  // The rank's thread: encodes what the step needs and puts it into its rows. On the stream of the forward passes, in
  // front of the one that reads them.
  Status run(VisionStep& step, device::Device& device, device::Stream stream);

 private:
  VisionStage(const VisionPlan& plan, const vision::Tower& tower) : plan_(plan), tower_(&tower) {}
  Status run(const VisionStep& step, const VisionCall& call, device::Device& device, device::Stream stream);

  VisionPlan plan_;
  const vision::Tower* tower_;
  sample::Staged<std::byte> patches_;
  sample::Staged<int32_t> ints_, rows_;
  sample::Staged<float> floats_;
  device::Buffer workspace_, out_, cache_;
  TensorView pictures_;
};

}  // namespace tern::engine
