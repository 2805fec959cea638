// Plain loops over one row: the oracle of norms, activations, rotation, softmax and expert sums.
#include <cmath>
#include <limits>

#include "base/bf16.h"
#include "kernels/cpu/ref.h"

namespace tern::kernels {
namespace {

float get(const void* p, int64_t i, int is_bf16) {
  return is_bf16 ? to_float(static_cast<const bf16*>(p)[i]) : static_cast<const float*>(p)[i];
}

void put(void* p, int64_t i, float v, int is_bf16) {
  if (is_bf16) {
    static_cast<bf16*>(p)[i] = to_bf16(v);
  } else {
    static_cast<float*>(p)[i] = v;
  }
}

float round_to(float v, int is_bf16) { return is_bf16 ? to_float(to_bf16(v)) : v; }

void store_row(const float* acc, const float* bias, float scale, void* out, int out_bf16, int64_t n) {
  for (int64_t i = 0; i < n; ++i) put(out, i, (acc[i] + (bias != nullptr ? bias[i] : 0.0f)) * scale, out_bf16);
}

void rms_norm_row(const RmsNormRow* a) {
  const void* x = a->x;
  if (a->residual != nullptr) {
    for (int64_t i = 0; i < a->n; ++i) put(a->residual, i, get(a->residual, i, a->bf16) + get(x, i, a->bf16), a->bf16);
    x = a->residual;
  }
  float sum = 0.0f;
  for (int64_t i = 0; i < a->n; ++i) sum += get(x, i, a->bf16) * get(x, i, a->bf16);
  const float r = 1.0f / std::sqrt(sum / static_cast<float>(a->n) + a->eps);
  for (int64_t i = 0; i < a->n; ++i) {
    const float y = round_to(get(x, i, a->bf16) * r, a->bf16);
    put(a->out, i, y * get(a->weight, i, a->weight_bf16), a->out_bf16);
  }
}

void silu_mul_row(const void* gate, const void* up, void* out, int is_bf16, int out_bf16, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const float g = get(gate, i, is_bf16);
    put(out, i, round_to(g / (1.0f + std::exp(-g)), is_bf16) * get(up, i, is_bf16), out_bf16);
  }
}

void rope_row(void* x, const float* cos, const float* sin, int64_t half, int interleaved, int is_bf16) {
  for (int64_t i = 0; i < half; ++i) {
    const int64_t a = interleaved ? 2 * i : i, b = interleaved ? 2 * i + 1 : i + half;
    const float xa = get(x, a, is_bf16), xb = get(x, b, is_bf16);
    put(x, a, xa * cos[i] - xb * sin[i], is_bf16);
    put(x, b, xb * cos[i] + xa * sin[i], is_bf16);
  }
}

void softmax_tile(const SoftmaxTile* a) {
  for (int64_t r = 0; r < a->rows; ++r) {
    float* s = a->s + r * a->ld_s;
    const int64_t valid = a->valid[r];
    float top = -std::numeric_limits<float>::infinity();
    for (int64_t c = 0; c < valid; ++c) {
      s[c] *= a->scale_log2;
      if (a->s_scale != nullptr) s[c] *= a->s_scale[c];
      top = s[c] > top ? s[c] : top;
    }
    const float old = a->m[r];
    float sum = 0.0f;
    if (top > old) {
      const float alpha = std::exp2(old - top);
      a->m[r] = top;
      a->l[r] *= alpha;
      for (int64_t d = 0; d < a->dim; ++d) a->acc[r * a->ld_acc + d] *= alpha;
    }
    for (int64_t c = 0; c < a->cols; ++c) {
      float p = c < valid ? std::exp2(s[c] - a->m[r]) : 0.0f;
      sum += p;
      if (a->p_scale != nullptr && c < valid) p *= a->p_scale[c];
      if (a->p_bf16) {
        static_cast<bf16*>(a->p)[r * a->ld_p + c] = to_bf16(p);
      } else {
        static_cast<float*>(a->p)[r * a->ld_p + c] = p;
      }
    }
    a->l[r] += sum;
  }
}

void softmax_merge(const SoftmaxMerge* a) {
  for (int64_t r = 0; r < a->rows; ++r) {
    if (a->l2[r] == 0.0f) continue;
    const float m = a->m[r] > a->m2[r] ? a->m[r] : a->m2[r];
    const float f1 = std::exp2(a->m[r] - m), f2 = std::exp2(a->m2[r] - m);
    a->m[r] = m;
    a->l[r] = a->l[r] * f1 + a->l2[r] * f2;
    float* acc = a->acc + r * a->ld_acc;
    const float* acc2 = a->acc2 + r * a->ld_acc2;
    for (int64_t d = 0; d < a->dim; ++d) acc[d] = acc[d] * f1 + acc2[d] * f2;
  }
}

void combine_row(const CombineRow* a) {
  for (int64_t i = 0; i < a->n; ++i) {
    float sum = 0.0f;
    for (int64_t j = 0; j < a->k; ++j) sum += a->weights[j] * get(a->y + a->rows[j] * a->y_stride, i, a->bf16);
    if (a->shared != nullptr) sum += a->shared_scale * get(a->shared, i, a->bf16);
    put(a->out, i, sum, a->bf16);
  }
}

}  // namespace

void fill_rows_ref(KernelTable* t) {
  t->store_row = store_row;
  t->rms_norm_row = rms_norm_row;
  t->silu_mul_row = silu_mul_row;
  t->rope_row = rope_row;
  t->softmax_tile = softmax_tile;
  t->softmax_merge = softmax_merge;
  t->combine_row = combine_row;
}

}  // namespace tern::kernels
