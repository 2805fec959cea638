// Ops that a back-end may put off and run together. Between begin_deferral() and end_deferral() it may keep linear(),
// gated_linear(), rms_norm(), grouped_linear(), moe_combine_norm() and qkv_prepare() back until another op or
// end_deferral() needs their results; what they read and write must stay where it is until then, and they run in the
// order in which they came. A failure of one may be reported by a later one. A product that rms_norm() adds to a
// residual, what the norm leaves for one product alone (RmsNormParams::once), results of experts
// (GroupedLinearParams::once), and the queries that qkv_prepare() leaves for attention() are between these ops: none
// need be what it would be without deferral. Back-ends that run everything at once do nothing here.
#pragma once

#include <cstdint>

#include "base/error.h"
#include "device/device.h"

namespace tern::ops {

// `rows`: of the products to come. `always`: whatever can be put off is, also where nothing is gained (tests). Never
// twice without end_deferral() between.
void begin_deferral(device::Stream stream, int64_t rows, bool always = false);
Status end_deferral(device::Stream stream);

}  // namespace tern::ops
