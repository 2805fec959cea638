// The weights of one rank as the decoder uses them. Widths are this rank's.
#pragma once

#include <vector>

#include "device/device.h"
#include "device/tensor.h"
#include "model/weights/weight_memory.h"
#include "ops/linear.h"

namespace tern::model {

struct Linear {
  ops::PackedWeight weight;  // [out, in]
  TensorView bias;           // empty, or [out] f32
};

struct GqaWeights {
  Linear qkv;                 // [(heads + 2 * kv_heads) * D, h]: q, k, v
  Linear out;                 // [h, heads * D]
  TensorView q_norm, k_norm;  // empty, or [D]
};

struct MlaWeights {
  Linear down;                          // [q_lora + kv_lora + rope, h]; without q_lora: [kv_lora + rope, h]
  TensorView q_norm;                    // [q_lora]
  TensorView kv_norm;                   // [kv_lora]
  ops::PackedWeight q_nope;             // [heads * nope, q_lora or h]
  ops::PackedWeight q_rope;             // [heads * rope, q_lora or h]
  std::vector<ops::PackedWeight> w_uk;  // heads of [kv_lora, nope]
  std::vector<ops::PackedWeight> w_uv;  // heads of [v, kv_lora]
  Linear out;                           // [h, heads * v]
};

struct DenseWeights {
  Linear gate_up;  // [2 * I, h]: gate, up
  Linear down;     // [h, I]
};

// Two banks of experts lie one after the other in every array. A dense MLP that takes the place of a bank stands
// after them all in gate_up and down.
struct MoeWeights {
  ops::PackedWeight router;                // [E, h], float32
  int split = -1;                          // experts of the first bank; -1: there is one bank
  TensorView correction_bias;              // empty, or [E] f32
  std::vector<ops::PackedWeight> gate_up;  // E of [2 * Im, h]; Im is the bank's
  std::vector<ops::PackedWeight> down;     // E of [h, Im]
  DenseWeights shared;                     // not valid when there is no shared expert
  ops::PackedWeight shared_gate;           // [1, h], float32; not valid when the shared expert is not gated
};

struct LayerWeights {
  TensorView input_norm, post_norm;  // [h]
  GqaWeights gqa;
  MlaWeights mla;
  DenseWeights dense;
  MoeWeights moe;
};

struct DecoderWeights {
  DecoderWeights() = default;
  DecoderWeights(const DecoderWeights&) = delete;
  DecoderWeights& operator=(const DecoderWeights&) = delete;

  WeightMemory memory;    // everything below lives here
  TensorView embedding;   // [V, h]; empty when the packed lm_head serves (tied)
  Linear lm_head;         // [V, h]; not valid in a pooling model
  DenseWeights score;     // of a pooling model with a head: [h or 2h, h], then [labels, h]
  TensorView final_norm;  // [h]
  std::vector<LayerWeights> layers;
};

}  // namespace tern::model
