// Ops that come from a shared object.
#pragma once

#include "base/error.h"
#include "device/device_cuda.h"
#include "ops/backend.h"
#include "ops/sample_backend.h"

namespace tern::ops {

// Sizes of all parameter structs: both sides must agree.
constexpr uint64_t backend_layout() {
  uint64_t h = 0xcbf29ce484222325u;
  for (const size_t size : {sizeof(Backend),          sizeof(SampleBackend),       sizeof(RmsNormParams),
                            sizeof(AddParams),        sizeof(SiluMulParams),       sizeof(EmbeddingParams),
                            sizeof(ResolveIdsParams), sizeof(GatherRowsParams),    sizeof(RopeTableParams),
                            sizeof(RopeParams),       sizeof(QkvPrepareParams),    sizeof(MlaCacheWriteParams),
                            sizeof(AttentionParams),  sizeof(AttentionPlanParams), sizeof(MlaAttentionParams),
                            sizeof(MoeRouteParams),   sizeof(MoePermuteParams),    sizeof(MoeCombineParams),
                            sizeof(LayerNormParams),  sizeof(ActivateParams),      sizeof(SegmentAttentionParams),
                            sizeof(TakeRowsParams),   sizeof(ScatterRowsParams),   sizeof(InterpolateRowsParams),
                            sizeof(LinearParams),     sizeof(GroupedLinearParams), sizeof(HeadLinearParams),
                            sizeof(PackedWeight),     sizeof(SlotParams),          sizeof(SlotArrays),
                            sizeof(SampleRow),        sizeof(LogitsParams),        sizeof(LogitMaskParams),
                            sizeof(SlotMarkParams),   sizeof(SampleParams),        sizeof(LogprobRow),
                            sizeof(LogprobParams),    sizeof(CaptureParams),       sizeof(CopyBlockParams),
                            sizeof(ThinkingState),    sizeof(ThinkingParams)}) {
    h = device::fold_layout(h, size);
  }
  return h;
}

// Registers the ops of a loaded library for DeviceKind::kCuda. Before the first op on a GPU.
Status register_cuda_ops(const device::CudaLibrary& library);

}  // namespace tern::ops
