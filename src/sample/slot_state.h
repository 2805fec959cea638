// The device arrays indexed by slot, and what is written into them when a sequence gets its slot.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/error.h"
#include "base/sampling_params.h"
#include "device/device.h"
#include "ops/logits.h"
#include "sample/params.h"
#include "sample/staged.h"

namespace tern::sample {

// Slot assignments of one step. What a sequence brings lies in one piece of pinned memory, or, once that is full, of
// memory that stays where it is. Filled by the engine thread, applied by the rank thread before the step samples.
class SlotUpdates {
 public:
  // Pinned memory for `slots` sequences with short lists, and some long prompts.
  static Expected<SlotUpdates> create(int slots, device::Device& device);

  // A sequence gets `slot`. `stop_ids`: end of text and stop ids, masked while the output is too short. `prompt` and
  // `output` are the ids known by now; they are only kept when a penalty needs them.
  void add(int slot, const SamplingParams& params, std::span<const int32_t> stop_ids, std::span<const int32_t> prompt,
           std::span<const int32_t> output);
  void clear() { items_.clear(), spilled_.clear(), used_ = 0; }
  bool empty() const { return items_.empty(); }
  // Those of `whole` whose slot % ranks is `rank`, as slot / ranks. They lie where `whole` has them.
  void take(const SlotUpdates& whole, int rank, int ranks);

 private:
  friend class SlotState;
  // In this order after `data`: parameters, state of reasoning, stop ids, bias ids, bias values, bad words, ids that
  // end reasoning, prompt, output.
  struct Item {
    int slot = 0;
    bool pinned = false;
    int32_t prompt = 0, output = 0;
    const char* data = nullptr;
    const ops::SlotParams& params() const { return *reinterpret_cast<const ops::SlotParams*>(data); }
  };
  char* take(size_t bytes, bool& pinned);

  device::Buffer memory_;
  size_t used_ = 0;
  std::vector<std::unique_ptr<char[]>> spilled_;
  std::vector<Item> items_;
};

class SlotState {
 public:
  static Expected<SlotState> create(int slots, int64_t vocab, const SlotCapacity& capacity, device::Device& device);

  const ops::SlotArrays& arrays() const { return arrays_; }
  // Queues the writes: one list of copies, and what penalties need to know of known ids. `updates` stays as it is until
  // the stream has passed them.
  Status apply(const SlotUpdates& updates, device::Device& device, device::Stream stream);

 private:
  using Item = SlotUpdates::Item;
  void list_copies(const Item& item);
  Status mark(const Item& item, device::Device& device, device::Stream stream);
  Status mark(int slot, const int32_t* tokens, int64_t count, bool output, device::Device& device,
              device::Stream stream);

  ops::SlotArrays arrays_;
  std::vector<device::Buffer> memory_;
  device::Buffer tokens_;  // device side of ids that are not pinned, on their way to the seen arrays
  std::vector<device::CopySpan> copies_;
};

}  // namespace tern::sample
