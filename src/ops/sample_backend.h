// The sampling ops and block copies of one kind of device as a table of functions; beside ops/backend.h.
#pragma once

#include <cstdint>

#include "ops/blocks.h"
#include "ops/logits.h"
#include "ops/sample.h"
#include "ops/thinking.h"

namespace tern::ops {

// Grows at the end only.
struct SampleBackend {
  uint32_t version = 1;
  Status (*logit_mask)(const LogitMaskParams&, device::Stream) = nullptr;
  Status (*logit_bias)(const LogitsParams&, device::Stream) = nullptr;
  Status (*logit_min_tokens)(const LogitsParams&, device::Stream) = nullptr;
  Status (*logit_penalties)(const LogitsParams&, device::Stream) = nullptr;
  Status (*logit_bad_words)(const LogitsParams&, device::Stream) = nullptr;
  Status (*slot_reset)(const SlotArrays&, int, device::Stream) = nullptr;
  Status (*slot_mark)(const SlotMarkParams&, device::Stream) = nullptr;
  Status (*sample)(const SampleParams&, device::Stream) = nullptr;
  size_t (*sample_workspace)(device::Stream, int64_t) = nullptr;
  Status (*token_logprobs)(const LogprobParams&, device::Stream) = nullptr;
  Status (*capture_logits)(const CaptureParams&, device::Stream) = nullptr;
  Status (*copy_block)(const CopyBlockParams&, device::Stream) = nullptr;
  Status (*thinking_force)(const LogitsParams&, device::Stream) = nullptr;
  Status (*thinking_advance)(const ThinkingParams&, device::Stream) = nullptr;
};

// `backend` outlives every op. Before the first op on that kind of device.
void register_sample_backend(device::DeviceKind kind, const SampleBackend* backend);

}  // namespace tern::ops
