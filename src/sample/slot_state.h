// The device arrays indexed by slot, and what is written into them when a sequence gets its slot.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/error.h"
#include "base/sampling_params.h"
#include "device/device.h"
#include "ops/logits.h"
#include "sample/params.h"
#include "sample/staged.h"

namespace tern::sample {

// Slot assignments of one step, as flat arrays that keep their memory. Filled by the engine thread, applied by the rank
// thread before the step samples.
class SlotUpdates {
 public:
  // A sequence gets `slot`. `stop_ids`: end of text and stop ids, masked while the output is too short. `prompt` and
  // `output` are the ids known by now; they are only kept when a penalty needs them.
  void add(int slot, const SamplingParams& params, std::span<const int32_t> stop_ids, std::span<const int32_t> prompt,
           std::span<const int32_t> output);
  void clear() { items_.clear(), ints_.clear(), floats_.clear(); }
  bool empty() const { return items_.empty(); }

 private:
  friend class SlotState;
  struct Item {
    int slot = 0;
    ops::SlotParams params;
    size_t ints = 0, floats = 0;  // first entries: stop ids, bias ids, bad words, prompt, output; bias values
    int32_t prompt = 0, output = 0;
  };
  std::vector<Item> items_;
  std::vector<int32_t> ints_;
  std::vector<float> floats_;
};

class SlotState {
 public:
  static Expected<SlotState> create(int slots, int64_t vocab, const SlotCapacity& capacity, device::Device& device);

  const ops::SlotArrays& arrays() const { return arrays_; }
  // Queues the writes. `updates` stays as it is until the stream has passed them.
  Status apply(const SlotUpdates& updates, device::Device& device, device::Stream stream);

 private:
  Status mark(int slot, const int32_t* tokens, int64_t count, bool output, device::Device& device,
              device::Stream stream);

  ops::SlotArrays arrays_;
  std::vector<device::Buffer> memory_;
  device::Buffer tokens_;  // device side of ids on their way to the seen arrays
};

}  // namespace tern::sample
