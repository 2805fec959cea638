#include "sample/slot_state.h"

#include <algorithm>

namespace tern::sample {
namespace {

constexpr int64_t kTokensAtOnce = 16384;

}  // namespace

void SlotUpdates::add(int slot, const SamplingParams& p, std::span<const int32_t> stop_ids,
                      std::span<const int32_t> prompt, std::span<const int32_t> output) {
  Item item;
  item.slot = slot;
  item.params = slot_params(p, static_cast<int>(stop_ids.size()));
  item.ints = ints_.size();
  item.floats = floats_.size();
  ints_.insert(ints_.end(), stop_ids.begin(), stop_ids.end());
  for (const auto& [id, bias] : p.logit_bias) ints_.push_back(id), floats_.push_back(bias);
  ints_.insert(ints_.end(), p.bad_words.begin(), p.bad_words.end());
  if (item.params.penalised) {
    item.prompt = static_cast<int32_t>(prompt.size());
    item.output = static_cast<int32_t>(output.size());
    ints_.insert(ints_.end(), prompt.begin(), prompt.end());
    ints_.insert(ints_.end(), output.begin(), output.end());
  }
  items_.push_back(item);
}

Expected<SlotState> SlotState::create(int slots, int64_t vocab, const SlotCapacity& c, device::Device& device) {
  SlotState s;
  ops::SlotArrays& a = s.arrays_;
  a.slots = slots, a.vocab = vocab;
  a.stop_capacity = c.stop_ids, a.bias_capacity = c.logit_bias, a.bad_capacity = c.bad_words;
  const auto make = [&](auto*& out, int64_t per_slot) -> Status {
    using T = std::remove_reference_t<decltype(*out)>;
    TERN_ASSIGN_OR_RETURN(device::Buffer b,
                          device.allocate(static_cast<size_t>(slots * std::max<int64_t>(per_slot, 1)) * sizeof(T)));
    out = reinterpret_cast<T*>(b.data());
    s.memory_.push_back(std::move(b));
    return {};
  };
  TERN_RETURN_IF_ERROR(make(a.params, 1));
  TERN_RETURN_IF_ERROR(make(a.seen, ops::seen_words(vocab)));
  TERN_RETURN_IF_ERROR(make(a.counts, vocab));
  TERN_RETURN_IF_ERROR(make(a.stop_ids, c.stop_ids));
  TERN_RETURN_IF_ERROR(make(a.bias_ids, c.logit_bias));
  TERN_RETURN_IF_ERROR(make(a.bias_values, c.logit_bias));
  TERN_RETURN_IF_ERROR(make(a.bad_ids, c.bad_words));
  TERN_ASSIGN_OR_RETURN(s.tokens_, device.allocate(kTokensAtOnce * sizeof(int32_t)));
  return s;
}

Status SlotState::mark(int slot, const int32_t* tokens, int64_t count, bool output, device::Device& device,
                       device::Stream stream) {
  auto* staging = reinterpret_cast<int32_t*>(tokens_.data());
  for (int64_t begin = 0; begin < count; begin += kTokensAtOnce) {
    const int64_t n = std::min(kTokensAtOnce, count - begin);
    device.copy_to_device(staging, tokens + begin, static_cast<size_t>(n) * sizeof(int32_t), stream);
    TERN_RETURN_IF_ERROR(ops::slot_mark({arrays_, slot, staging, n, output}, stream));
  }
  return {};
}

Status SlotState::apply(const SlotUpdates& updates, device::Device& device, device::Stream stream) {
  const ops::SlotArrays& a = arrays_;
  for (const SlotUpdates::Item& item : updates.items_) {
    const ops::SlotParams& p = item.params;
    const int64_t slot = item.slot;
    const int32_t* ints = updates.ints_.data() + item.ints;
    const auto send = [&](void* to, const void* from, int32_t count) {
      if (count > 0) device.copy_to_device(to, from, static_cast<size_t>(count) * 4, stream);
    };
    device.copy_to_device(a.params + slot, &p, sizeof p, stream);
    send(a.stop_ids + slot * a.stop_capacity, ints, p.stop_count);
    ints += p.stop_count;
    send(a.bias_ids + slot * a.bias_capacity, ints, p.bias_count);
    send(a.bias_values + slot * a.bias_capacity, updates.floats_.data() + item.floats, p.bias_count);
    ints += p.bias_count;
    send(a.bad_ids + slot * a.bad_capacity, ints, p.bad_count);
    ints += p.bad_count;
    if (!p.penalised) continue;
    TERN_RETURN_IF_ERROR(ops::slot_reset(a, item.slot, stream));
    TERN_RETURN_IF_ERROR(mark(item.slot, ints, item.prompt, false, device, stream));
    TERN_RETURN_IF_ERROR(mark(item.slot, ints + item.prompt, item.output, true, device, stream));
  }
  return {};
}

}  // namespace tern::sample
