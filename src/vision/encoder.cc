#include "vision/encoder.h"

#include <cmath>

#include "ops/linear.h"
#include "ops/vision.h"

namespace tern::vision {

size_t attention_workspace(const EncoderPass& pass, const Segments& segments, int64_t rows, int64_t width) {
  return ops::segment_attention_workspace(pass.stream, rows, segments.count, pass.heads,
                                          static_cast<int>(width / pass.heads));
}

Status self_attention(const EncoderPass& pass, const Linear& qkv_weight, const Linear& output, Segments& segments,
                      TensorView x, TensorView out) {
  const int64_t n = x.dim[0], w = x.dim[1], heads = pass.heads, d = w / heads;
  const size_t mark = pass.arena.mark();
  const TensorView qkv = pass.arena.tensor(ops::between_products(pass.stream, pass.activation), n, 3 * w),
                   mixed = pass.arena.tensor(pass.activation, n, w);
  void* workspace = segments.workspace;
  if (!segments.shared) workspace = pass.arena.take(attention_workspace(pass, segments, n, w));
  if (pass.runs()) {
    TERN_RETURN_IF_ERROR(ops::linear(qkv_weight.product(x, qkv), pass.stream));
    ops::SegmentAttentionParams p;
    p.q = qkv.columns(0, w).split(heads, d), p.k = qkv.columns(w, 2 * w).split(heads, d);
    p.v = qkv.columns(2 * w, 3 * w).split(heads, d);
    p.starts = segments.starts, p.out = mixed;
    p.cos = pass.cos, p.sin = pass.sin;
    p.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(d)));
    p.max_segment = segments.longest, p.product = pass.activation;
    p.workspace = workspace, p.planned = segments.planned;
    segments.planned = segments.shared;
    TERN_RETURN_IF_ERROR(ops::segment_attention(p, pass.stream));
    TERN_RETURN_IF_ERROR(ops::linear(output.product(mixed, out), pass.stream));
  }
  pass.arena.release(mark);
  return {};
}

}  // namespace tern::vision
