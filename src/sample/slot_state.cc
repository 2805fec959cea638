#include "sample/slot_state.h"

#include <algorithm>
#include <cstring>

#include "ops/thinking.h"

namespace tern::sample {
namespace {

constexpr int64_t kTokensAtOnce = 16384;
// Of a step's pinned memory: per slot, and for prompts with penalties.
constexpr size_t kSlotBytes = 512, kPromptBytes = size_t{256} << 10;

void put(char*& at, const void* data, size_t bytes) {
  if (bytes > 0) std::memcpy(at, data, bytes);
  at += bytes;
}

template <class T>
void put(char*& at, std::span<const T> values) {
  put(at, values.data(), values.size_bytes());
}

// What the device would have come to with this output.
ops::ThinkingState thinking_state(const SamplingParams& p, std::span<const int32_t> output) {
  ops::ThinkingState state;
  if (p.thinking_limit < 0) return state;
  const ops::ThinkingIds ids = thinking_ids(p);
  const auto limit = static_cast<size_t>(p.thinking_limit);
  for (size_t i = 0; i < output.size(); ++i) ops::advance_thinking(state, ids, output[i], i >= limit);
  return state;
}

}  // namespace

Expected<SlotUpdates> SlotUpdates::create(int slots, device::Device& device) {
  SlotUpdates u;
  TERN_ASSIGN_OR_RETURN(u.memory_, device.allocate_host(static_cast<size_t>(slots) * kSlotBytes + kPromptBytes));
  u.items_.reserve(static_cast<size_t>(slots));
  return u;
}

char* SlotUpdates::take(size_t bytes, bool& pinned) {
  pinned = bytes <= memory_.bytes() - used_;
  if (!pinned) return spilled_.emplace_back(std::make_unique<char[]>(bytes)).get();
  char* const at = memory_.data() + used_;
  used_ = std::min(memory_.bytes(), (used_ + bytes + 15) / 16 * 16);
  return at;
}

void SlotUpdates::add(int slot, const SamplingParams& p, std::span<const int32_t> stop_ids,
                      std::span<const int32_t> prompt, std::span<const int32_t> output) {
  const ops::SlotParams params = slot_params(p, static_cast<int>(stop_ids.size()));
  const ops::ThinkingState thinking = thinking_state(p, output);
  if (!params.penalised) prompt = output = {};
  if (!p.repetition_over_prompt) prompt = {};
  const size_t words = stop_ids.size() + 2 * p.logit_bias.size() + p.bad_words.size() + p.thinking_mark.size() +
                       p.thinking_forced.size() + prompt.size() + output.size();
  Item item;
  item.slot = slot;
  item.prompt = static_cast<int32_t>(prompt.size()), item.output = static_cast<int32_t>(output.size());
  char* at = take(sizeof params + sizeof thinking + 4 * words, item.pinned);
  item.data = at;
  put(at, &params, sizeof params);
  put(at, &thinking, sizeof thinking);
  put(at, stop_ids);
  for (const auto& bias : p.logit_bias) put(at, &bias.first, 4);
  for (const auto& bias : p.logit_bias) put(at, &bias.second, 4);
  put(at, std::span(p.bad_words));
  put(at, std::span(p.thinking_mark));
  put(at, std::span(p.thinking_forced));
  put(at, prompt);
  put(at, output);
  items_.push_back(item);
}

Expected<SlotState> SlotState::create(int slots, int64_t vocab, const SlotCapacity& c, device::Device& device) {
  SlotState s;
  ops::SlotArrays& a = s.arrays_;
  a.slots = slots, a.vocab = vocab;
  a.stop_capacity = c.stop_ids, a.bias_capacity = c.logit_bias, a.bad_capacity = c.bad_words;
  a.thinking_capacity = c.thinking;
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
  TERN_RETURN_IF_ERROR(make(a.thinking_ids, c.thinking));
  TERN_RETURN_IF_ERROR(make(a.thinking_states, 1));
  s.copies_.reserve(static_cast<size_t>(slots) * 7);
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

void SlotState::list_copies(const Item& item) {
  const ops::SlotArrays& a = arrays_;
  const ops::SlotParams& p = item.params();
  const int64_t slot = item.slot;
  const char* from = item.data;
  const auto add = [&](void* to, size_t bytes) {
    if (bytes > 0) copies_.push_back({to, from, bytes, 1, bytes, bytes});
    from += bytes;
  };
  add(a.params + slot, sizeof p);
  add(a.thinking_states + slot, sizeof(ops::ThinkingState));
  add(a.stop_ids + slot * a.stop_capacity, 4 * static_cast<size_t>(p.stop_count));
  add(a.bias_ids + slot * a.bias_capacity, 4 * static_cast<size_t>(p.bias_count));
  add(a.bias_values + slot * a.bias_capacity, 4 * static_cast<size_t>(p.bias_count));
  add(a.bad_ids + slot * a.bad_capacity, 4 * static_cast<size_t>(p.bad_count));
  add(a.thinking_ids + slot * a.thinking_capacity, 4 * static_cast<size_t>(p.thinking_mark + p.thinking_forced));
}

Status SlotState::mark(const Item& item, device::Device& device, device::Stream stream) {
  const ops::SlotParams& p = item.params();
  if (!p.penalised) return {};
  TERN_RETURN_IF_ERROR(ops::slot_reset(arrays_, item.slot, stream));
  const auto* prompt = reinterpret_cast<const int32_t*>(item.data + sizeof p + sizeof(ops::ThinkingState)) +
                       p.stop_count + 2 * p.bias_count + p.bad_count + p.thinking_mark + p.thinking_forced;
  if (!item.pinned) {
    TERN_RETURN_IF_ERROR(mark(item.slot, prompt, item.prompt, false, device, stream));
    return mark(item.slot, prompt + item.prompt, item.output, true, device, stream);
  }
  // A device reads pinned memory like its own.
  TERN_RETURN_IF_ERROR(ops::slot_mark({arrays_, item.slot, prompt, item.prompt, false}, stream));
  return ops::slot_mark({arrays_, item.slot, prompt + item.prompt, item.output, true}, stream);
}

Status SlotState::apply(const SlotUpdates& updates, device::Device& device, device::Stream stream) {
  if (updates.empty()) return {};
  copies_.clear();
  for (const Item& item : updates.items_) {
    const size_t first = copies_.size();
    list_copies(item);
    if (item.pinned) continue;
    for (size_t i = first; i < copies_.size(); ++i) {
      device.copy_to_device(copies_[i].dst, copies_[i].src, copies_[i].bytes, stream);
    }
    copies_.resize(first);
  }
  TERN_RETURN_IF_ERROR(device.copy_many(copies_, stream));
  for (const Item& item : updates.items_) TERN_RETURN_IF_ERROR(mark(item, device, stream));
  return {};
}

}  // namespace tern::sample
