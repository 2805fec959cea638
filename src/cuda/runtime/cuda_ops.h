// The CUDA functions behind ops/backend.h: every op of the list.
#pragma once

#include "cuda/runtime/context.h"
#include "cuda/runtime/deferred.h"
#include "ops/backend.h"

namespace tern::cuda {

#define TERN_OP(name, Params) Status name(const ops::Params&, device::Stream);
#define TERN_OP_OPTIONAL(name, Params) Status name(const ops::Params&, device::Stream);
#define TERN_OP_FUNCTION(Result, name, Parameters) Result name Parameters;
#define TERN_OP_FUNCTION_OPTIONAL(Result, name, Parameters) Result name Parameters;
#include "ops/op_list.inc"

}  // namespace tern::cuda
