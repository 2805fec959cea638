// Dispatch of the sampling ops and of block copies. They have a table of their own: a back-end registers it beside the
// one of backend.h.
#include <atomic>
#include <cstring>

#include "ops/blocks.h"
#include "ops/sample_backend.h"
#include "ops/sample_ops.h"

namespace tern::ops {
namespace {

std::atomic<const SampleBackend*> g_registered[2];

Status copy_block_cpu(const CopyBlockParams& p, device::Stream) {
  if (p.base == nullptr || p.from < 0 || p.to < 0) {
    return make_error(ErrorCode::kInvalidArgument, "copy_block: there is no such block");
  }
  std::memcpy(p.base + static_cast<size_t>(p.to) * p.block_bytes, p.base + static_cast<size_t>(p.from) * p.block_bytes,
              p.block_bytes);
  return {};
}

const SampleBackend& cpu_sample_backend() {
  static const SampleBackend backend = [] {
    SampleBackend b;
    b.logit_mask = cpu::logit_mask;
    b.logit_bias = cpu::logit_bias;
    b.logit_min_tokens = cpu::logit_min_tokens;
    b.logit_penalties = cpu::logit_penalties;
    b.logit_bad_words = cpu::logit_bad_words;
    b.slot_reset = cpu::slot_reset;
    b.slot_mark = cpu::slot_mark;
    b.sample = cpu::sample;
    b.sample_workspace = cpu::sample_workspace;
    b.token_logprobs = cpu::token_logprobs;
    b.capture_logits = cpu::capture_logits;
    b.copy_block = copy_block_cpu;
    b.thinking_force = cpu::thinking_force;
    b.thinking_advance = cpu::thinking_advance;
    return b;
  }();
  return backend;
}

const SampleBackend* lookup(device::DeviceKind kind) {
  const SampleBackend* b = g_registered[static_cast<int>(kind)].load(std::memory_order_acquire);
  if (b == nullptr && kind == device::DeviceKind::kCpu) return &cpu_sample_backend();
  return b;
}

Error missing(const char* name) {
  return make_error(ErrorCode::kUnsupported, std::string("op ") + name + " is not built for this device");
}

template <class P>
Status dispatch(Status (*SampleBackend::*op)(const P&, device::Stream), const P& params, device::Stream stream,
                const char* name) {
  const SampleBackend* b = lookup(stream.kind);
  if (b == nullptr || b->*op == nullptr) return missing(name);
  return (b->*op)(params, stream);
}

}  // namespace

void register_sample_backend(device::DeviceKind kind, const SampleBackend* backend) {
  g_registered[static_cast<int>(kind)].store(backend, std::memory_order_release);
}

#define TERN_OP(function, Params) \
  Status function(const Params& p, device::Stream s) { return dispatch(&SampleBackend::function, p, s, #function); }
TERN_OP(logit_mask, LogitMaskParams)
TERN_OP(logit_bias, LogitsParams)
TERN_OP(logit_min_tokens, LogitsParams)
TERN_OP(logit_penalties, LogitsParams)
TERN_OP(logit_bad_words, LogitsParams)
TERN_OP(slot_mark, SlotMarkParams)
TERN_OP(sample, SampleParams)
TERN_OP(token_logprobs, LogprobParams)
TERN_OP(capture_logits, CaptureParams)
TERN_OP(copy_block, CopyBlockParams)
TERN_OP(thinking_force, LogitsParams)
TERN_OP(thinking_advance, ThinkingParams)
#undef TERN_OP

Status slot_reset(const SlotArrays& slots, int slot, device::Stream stream) {
  const SampleBackend* b = lookup(stream.kind);
  if (b == nullptr || b->slot_reset == nullptr) return missing("slot_reset");
  return b->slot_reset(slots, slot, stream);
}

size_t sample_workspace(device::Stream stream, int64_t vocab) {
  const SampleBackend* b = lookup(stream.kind);
  return b == nullptr || b->sample_workspace == nullptr ? 0 : b->sample_workspace(stream, vocab);
}

}  // namespace tern::ops
