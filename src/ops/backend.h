// The ops of one kind of device as a table of functions. The CPU's is built in; another back-end fills its own (from a
// shared object loaded at run time) and registers it before the first op. A null entry means that the op is not there.
#pragma once

#include <cstdint>

#include "base/error.h"
#include "device/device.h"
#include "ops/activation.h"
#include "ops/attention.h"
#include "ops/collective.h"
#include "ops/deferral.h"
#include "ops/draw_facts.h"
#include "ops/embedding.h"
#include "ops/linear.h"
#include "ops/logits.h"
#include "ops/moe.h"
#include "ops/norm.h"
#include "ops/rope.h"
#include "ops/sample.h"
#include "ops/thinking.h"
#include "ops/vision.h"

namespace tern::ops {

struct Backend {
#define TERN_OP(name, Params) Status (*name)(const Params&, device::Stream) = nullptr;
#define TERN_OP_OPTIONAL(name, Params) Status (*name)(const Params&, device::Stream) = nullptr;
#define TERN_OP_HOST(name, Params) Status (*name)(const Params&, device::Stream) = nullptr;
#define TERN_OP_FUNCTION(Result, name, Parameters) Result(*name) Parameters = nullptr;
#define TERN_OP_FUNCTION_OPTIONAL(Result, name, Parameters) Result(*name) Parameters = nullptr;
#include "ops/op_list.inc"
};

// Null when no back-end of that kind is registered.
const Backend* find_backend(device::DeviceKind kind);
// `backend` must outlive every op. Before the first op on that kind of device.
void register_backend(device::DeviceKind kind, const Backend* backend);
const Backend& cpu_backend();

}  // namespace tern::ops
