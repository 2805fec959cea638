// Ops that come from a shared object.
#pragma once

#include <string_view>

#include "base/error.h"
#include "device/device_cuda.h"
#include "ops/backend.h"

namespace tern::ops {

// Names of all ops in their order and sizes of everything they are given: both sides must agree.
constexpr uint64_t backend_layout() {
  uint64_t h = 0xcbf29ce484222325u;
  const auto name_of = [&](std::string_view name) {
    for (const char c : name) h = device::fold_layout(h, static_cast<unsigned char>(c));
  };
#define TERN_OP(name, Params) name_of(#name), h = device::fold_layout(h, sizeof(Params));
#define TERN_OP_OPTIONAL(name, Params) name_of(#name), h = device::fold_layout(h, sizeof(Params));
#define TERN_OP_HOST(name, Params) name_of(#name), h = device::fold_layout(h, sizeof(Params));
#define TERN_OP_FUNCTION(Result, name, Parameters) name_of(#name);
#define TERN_OP_FUNCTION_OPTIONAL(Result, name, Parameters) name_of(#name);
#include "ops/op_list.inc"
  for (const size_t size : {sizeof(Backend), sizeof(LinearParams), sizeof(GroupedLinearParams),
                            sizeof(HeadLinearParams), sizeof(PackedWeight), sizeof(SlotParams), sizeof(SlotArrays),
                            sizeof(SampleRow), sizeof(LogprobRow), sizeof(ThinkingState)}) {
    h = device::fold_layout(h, size);
  }
  return h;
}

// Registers the ops of a loaded library for DeviceKind::kCuda. Before the first op on a GPU.
Status register_cuda_ops(const device::CudaLibrary& library);

}  // namespace tern::ops
