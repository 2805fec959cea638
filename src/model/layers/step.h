// One pass over the layers: what all of them share.
#pragma once

#include <array>

#include "device/arena.h"
#include "device/communicator.h"
#include "model/batch.h"
#include "model/decoder_spec.h"
#include "model/model.h"
#include "model/weights/decoder_weights.h"
#include "ops/attention.h"
#include "ops/collective.h"

namespace tern::model {

// The tokens of all engines whose ranks share the experts.
struct Gathered {
  device::Communicator communicator;
  std::array<int64_t, kMostExpertRanks + 1> first{};  // rows [first[r], first[r + 1]) are what rank r brings
  int64_t tokens = 0;                                 // of all
  int64_t own = 0;                                    // row of this engine's first one
};

// In measuring mode (arena without memory) layers take what they need and run nothing.
struct Step {
  int tokens = 0, rows = 0;
  int max_query_len = 0, max_context_len = 0;
  DType type = DType::kBF16;
  device::Arena& arena;
  device::Stream stream;
  TensorView cos, sin;  // [T, rotary_dim / 2] f32
  const Batch* batch = nullptr;
  Probe* probe = nullptr;
  ops::AttentionPlan plan;             // how the attention of all layers is cut
  DType product = DType::kF32;         // of between()
  device::Communicator communicator;   // of the ranks that have a part of every product
  const Gathered* gathered = nullptr;  // null: experts see the tokens of this step alone
  // [R] int32: the rows of a layer's result that are asked for, in this order; rank 0: all of them.
  TensorView wanted;

  // Adds up over the ranks what their parts of a product have given: [rows, h] f32.
  Status reduce(TensorView partial) {
    return communicator.alone() ? Status() : ops::all_reduce({communicator, partial}, stream);
  }
  // The norm of the sum of what the ranks' parts of a product have given, norm.x.
  Status reduce_norm(const ops::RmsNormParams& norm) {
    if (communicator.alone()) return ops::rms_norm(norm, stream);
    return ops::all_reduce_norm({{communicator, norm.x}, norm}, stream);
  }
  int64_t results() const { return wanted.rank == 0 ? tokens : wanted.dim[0]; }
  bool measuring() const { return arena.measuring(); }
  // What a product reads: rounded to the activation type.
  TensorView act(int64_t n, int64_t cols) { return arena.tensor(type, n, cols); }
  // Everything between products: float32, whatever the activation type.
  TensorView exact(int64_t n, int64_t cols) { return arena.tensor(DType::kF32, n, cols); }
  // What a product leaves for an op that rounds its own result: float32 or, where the device would rather have it so
  // and activations are bfloat16, bfloat16. Room for float32 in any case, so that fewer rows never need more. A bias is
  // added in float32.
  TensorView between(int64_t n, const Linear& l) {
    return l.bias.empty() ? between(n, l.weight.n) : exact(n, l.weight.n);
  }
  TensorView between(int64_t n, int64_t cols) {
    TensorView v = exact(n, cols);
    v.dtype = product;
    return v;
  }
};

// Gives back at the end of a scope what was taken in it.
class Scratch {
 public:
  explicit Scratch(device::Arena& arena) : arena_(arena), mark_(arena.mark()) {}
  ~Scratch() { arena_.release(mark_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

 private:
  device::Arena& arena_;
  const size_t mark_;
};

}  // namespace tern::model
