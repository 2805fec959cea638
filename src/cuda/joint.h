// A norm joined with its neighbours: on an open tape (ops/tape.h) a product of few rows is put off until it is known
// what follows. If that is a norm that adds it to a residual, and behind the norm a product of its rows alone, neither
// is launched as it is: the first product adds to the residual and leaves rows that lack their scale, the second one
// scales its sums (gemm_norm.cuh). In every other case what was put off runs as it came.
#pragma once

#include "base/error.h"
#include "cuda/gemm_args.h"
#include "device/device.h"
#include "ops/norm.h"

namespace tern::cuda {

inline constexpr int64_t kJointRows = 64, kJointParts = 1024;  // tokens; sums of squares of each
inline constexpr int kJointTurns = 2;  // a product may read the sums before a norm and leave those behind the next one

struct Joint {
  bool open = false;
  bool product = false, norm = false;  // what is put off; a norm only behind a product
  int turn = 0;
  Gemm g;
  const void* weight = nullptr;
  ops::RmsNormParams params;
};

inline constexpr size_t kJointBytes = kJointTurns * kJointRows * kJointParts * sizeof(float);

// Puts off a product whose kernel can do the first part of a norm.
void joint_hold(const Gemm& g, const void* weight, device::Stream stream);
// Whether the norm is put off, too.
bool joint_hold(const ops::RmsNormParams& p, device::Stream stream);
// Before a product whose kernel can do the second part of a norm. Launches what was put off, joined if it may be.
Status joint_product(Gemm& g, device::Stream stream);
// Launches what was put off as it came.
Status play_joint(device::Stream stream);

}  // namespace tern::cuda
