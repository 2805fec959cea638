// The parts of a decoder layer: x [T, h] in the activation type, out [T, h] in float32. Head counts and widths are
// those of the weights given, which are one rank's.
#pragma once

#include "base/error.h"
#include "model/layers/step.h"
#include "model/weights/decoder_weights.h"
#include "ops/norm.h"

namespace tern::model {

Status gqa_attention(Step& step, const AttentionSpec& spec, const RopeSpec& rope, float eps, const GqaWeights& w,
                     KvLayerView cache, TensorView x, TensorView out);
Status mla_attention(Step& step, const AttentionSpec& spec, const RopeSpec& rope, const MlaWeights& w,
                     KvLayerView cache, TensorView x, TensorView out);
Status dense_mlp(Step& step, const DenseWeights& w, TensorView x, TensorView out);
// It does the norm `before` first and reads what that leaves. Its result goes through `next`, the norm after it, whose
// x is the room for it.
Status moe_mlp(Step& step, const MoeSpec& spec, int layer, const MoeWeights& w, const ops::RmsNormParams& before,
               const ops::RmsNormParams& next);
// From the last hidden states, [n, h] in the activation type, to rows of a pooling model, [n, pooled()] in float32.
Status pool_head(Step& step, HeadKind kind, const DenseWeights& w, TensorView rows, TensorView out);

}  // namespace tern::model
