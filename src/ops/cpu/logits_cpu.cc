#include <algorithm>
#include <cstring>
#include <limits>

#include "ops/cpu/cpu_ops.h"
#include "ops/logits.h"
#include "ops/op_check.h"

namespace tern::ops::cpu {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

Status check(const char* op, const LogitsParams& p) {
  TERN_OP_CHECK(op, p.logits.rank == 2 && p.logits.dtype == DType::kF32 && is_rows(p.logits),
                "logits must be [L, V] f32");
  TERN_OP_CHECK(op, p.count == 0 || p.rows != nullptr, "rows are missing");
  TERN_OP_CHECK(op, p.slots.params != nullptr && p.slots.vocab == p.logits.dim[1], "slots are of another vocabulary");
  for (int i = 0; i < p.count; ++i) {
    const SampleRow& r = p.rows[i];
    if (!r.is_row()) continue;
    TERN_OP_CHECK(op, r.logit_row < p.logits.dim[0], "a logit row is out of range");
    TERN_OP_CHECK(op, r.slot >= 0 && r.slot < p.slots.slots, "a slot is out of range");
  }
  return {};
}

float* row_of(const LogitsParams& p, const SampleRow& r) {
  return reinterpret_cast<float*>(p.logits.row_bytes(r.logit_row));
}

// Entry `slot` of an array of lists.
template <class T>
T* list(T* base, int slot, int64_t capacity) {
  return base + static_cast<int64_t>(slot) * capacity;
}

void penalise(float* x, const SlotParams& s, const uint64_t* seen, const int32_t* counts, int64_t vocab) {
  for (int64_t word = 0; word < seen_words(vocab); ++word) {
    for (uint64_t bits = seen[word]; bits != 0; bits &= bits - 1) {
      const int64_t id = word * 64 + __builtin_ctzll(bits);
      float v = x[id];
      v = v < 0 ? v * s.repetition : v / s.repetition;
      if (counts[id] > 0) v = v - static_cast<float>(counts[id]) * s.frequency - s.presence;
      x[id] = v;
    }
  }
}

}  // namespace

Status logit_mask(const LogitMaskParams& m, device::Stream stream) {
  const LogitsParams& p = m.rows;
  TERN_RETURN_IF_ERROR(check("logit_mask", p));
  const int64_t vocab = p.logits.dim[1];
  TERN_OP_CHECK("logit_mask", m.masks.rank == 2 && m.masks.dtype == DType::kI32 && m.masks.dim[1] * 32 >= vocab,
                "masks must be [rows, V / 32] int32");
  for_parts_dynamic(stream, p.count, [&](int i) {
    const SampleRow& r = p.rows[i];
    if (!r.is_row() || r.mask_row < 0) return;
    const auto* bits = reinterpret_cast<const uint32_t*>(m.masks.row_bytes(r.mask_row));
    float* x = row_of(p, r);
    for (int64_t id = 0; id < vocab; ++id) x[id] = (bits[id / 32] >> (id % 32) & 1u) != 0 ? x[id] : -kInf;
  });
  return {};
}

Status logit_bias(const LogitsParams& p, device::Stream) {
  TERN_RETURN_IF_ERROR(check("logit_bias", p));
  for (int i = 0; i < p.count; ++i) {
    const SampleRow& r = p.rows[i];
    if (!r.is_row()) continue;
    const int32_t* ids = list(p.slots.bias_ids, r.slot, p.slots.bias_capacity);
    const float* values = list(p.slots.bias_values, r.slot, p.slots.bias_capacity);
    float* x = row_of(p, r);
    for (int k = 0; k < p.slots.params[r.slot].bias_count; ++k) x[ids[k]] += values[k];
  }
  return {};
}

Status logit_min_tokens(const LogitsParams& p, device::Stream) {
  TERN_RETURN_IF_ERROR(check("logit_min_tokens", p));
  for (int i = 0; i < p.count; ++i) {
    const SampleRow& r = p.rows[i];
    if (!r.is_row()) continue;
    const SlotParams& s = p.slots.params[r.slot];
    if (r.generated >= s.min_tokens) continue;
    const int32_t* ids = list(p.slots.stop_ids, r.slot, p.slots.stop_capacity);
    float* x = row_of(p, r);
    for (int k = 0; k < s.stop_count; ++k) x[ids[k]] = kMaskedLogit;
  }
  return {};
}

Status logit_penalties(const LogitsParams& p, device::Stream stream) {
  TERN_RETURN_IF_ERROR(check("logit_penalties", p));
  for_parts_dynamic(stream, p.count, [&](int i) {
    const SampleRow& r = p.rows[i];
    if (!r.is_row()) return;
    const SlotParams& s = p.slots.params[r.slot];
    if (!s.penalised) return;
    penalise(row_of(p, r), s, list(p.slots.seen, r.slot, seen_words(p.slots.vocab)),
             list(p.slots.counts, r.slot, p.slots.vocab), p.slots.vocab);
  });
  return {};
}

Status logit_bad_words(const LogitsParams& p, device::Stream) {
  TERN_RETURN_IF_ERROR(check("logit_bad_words", p));
  for (int i = 0; i < p.count; ++i) {
    const SampleRow& r = p.rows[i];
    if (!r.is_row()) continue;
    const SlotParams& s = p.slots.params[r.slot];
    const int32_t* ids = list(p.slots.bad_ids, r.slot, p.slots.bad_capacity);
    float* x = row_of(p, r);
    for (int k = 0; k < s.bad_count; ++k) x[ids[k]] = kMaskedLogit * s.temperature;
  }
  return {};
}

Status thinking_force(const LogitsParams& p, device::Stream) {
  TERN_RETURN_IF_ERROR(check("thinking_force", p));
  for (int i = 0; i < p.count; ++i) {
    const SampleRow& r = p.rows[i];
    if (!r.is_row() || r.thinking == 0) continue;
    const ThinkingState& state = p.slots.thinking_states[r.slot];
    if (r.generated < p.slots.params[r.slot].thinking_limit || state.matched < 0) continue;
    float* x = row_of(p, r);
    std::fill(x, x + p.logits.dim[1], -kInf);
    x[next_thinking_id(state, thinking_ids(p.slots, r.slot))] = 0;
  }
  return {};
}

Status thinking_advance(const ThinkingParams& t, device::Stream) {
  const LogitsParams& p = t.rows;
  TERN_RETURN_IF_ERROR(check("thinking_advance", p));
  TERN_OP_CHECK("thinking_advance", t.ids.rank == 1 && t.ids.dtype == DType::kI32, "ids must be [L] int32");
  for (int i = 0; i < p.count; ++i) {
    const SampleRow& r = p.rows[i];
    if (!r.is_row() || r.thinking == 0) continue;
    const int32_t limit = p.slots.params[r.slot].thinking_limit;
    advance_thinking(p.slots.thinking_states[r.slot], thinking_ids(p.slots, r.slot), t.ids.as<int32_t>()[r.logit_row],
                     r.generated >= limit);
  }
  return {};
}

Status slot_reset(const SlotArrays& s, int slot, device::Stream) {
  TERN_OP_CHECK("slot_reset", slot >= 0 && slot < s.slots, "the slot is out of range");
  uint64_t* seen = list(s.seen, slot, seen_words(s.vocab));
  int32_t* counts = list(s.counts, slot, s.vocab);
  // A count above zero implies its seen bit: only those places are touched, so that unused pages stay unused.
  for (int64_t word = 0; word < seen_words(s.vocab); ++word) {
    for (uint64_t bits = seen[word]; bits != 0; bits &= bits - 1) counts[word * 64 + __builtin_ctzll(bits)] = 0;
    if (seen[word] != 0) seen[word] = 0;
  }
  return {};
}

Status slot_mark(const SlotMarkParams& p, device::Stream) {
  const SlotArrays& s = p.slots;
  TERN_OP_CHECK("slot_mark", p.slot >= 0 && p.slot < s.slots, "the slot is out of range");
  for (int64_t i = 0; i < p.count; ++i) {
    TERN_OP_CHECK("slot_mark", p.tokens[i] >= 0 && p.tokens[i] < s.vocab, "a token id is out of range");
    mark_token(s, p.slot, p.tokens[i], p.output);
  }
  return {};
}

}  // namespace tern::ops::cpu
