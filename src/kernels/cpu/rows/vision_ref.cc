// Plain loops over one row: the oracle of the kernels that vision towers add.
#include <cmath>

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

void layer_norm_row(const LayerNormRow* a) {
  const void* x = a->x;
  if (a->residual != nullptr) {
    for (int64_t i = 0; i < a->n; ++i) put(a->residual, i, get(a->residual, i, a->bf16) + get(x, i, a->bf16), a->bf16);
    x = a->residual;
  }
  const auto n = static_cast<float>(a->n);
  float sum = 0.0f, square = 0.0f;
  for (int64_t i = 0; i < a->n; ++i) sum += get(x, i, a->bf16);
  const float mean = sum / n;
  for (int64_t i = 0; i < a->n; ++i) {
    const float d = get(x, i, a->bf16) - mean;
    square += d * d;
  }
  const float r = 1.0f / std::sqrt(square / n + a->eps);
  for (int64_t i = 0; i < a->n; ++i) {
    const float y = (get(x, i, a->bf16) - mean) * r;
    put(a->out, i, y * get(a->weight, i, a->weight_bf16) + get(a->bias, i, a->weight_bf16), a->out_bf16);
  }
}

float activated(float x, int kind) {
  switch (kind) {
    case kGeluErfRow:
      return 0.5f * x * std::erfc(x * -0.70710678118654752f);
    case kGeluTanhRow:
      return x / (1.0f + std::exp(-1.5957691216057308f * (x + 0.044715f * x * x * x)));
    case kQuickGeluRow:
      return x / (1.0f + std::exp(-1.702f * x));
    case kReluRow:
      return x < 0.0f ? 0.0f : x;
    case kNoneRow:
      return x;
    default:
      return x / (1.0f + std::exp(-x));
  }
}

void activate_row(const void* x, void* out, int kind, int is_bf16, int out_bf16, int64_t n) {
  for (int64_t i = 0; i < n; ++i) put(out, i, activated(get(x, i, is_bf16), kind), out_bf16);
}

void interpolate_row(const InterpolateRow* a) {
  for (int64_t i = 0; i < a->n; ++i) {
    float sum = 0.0f;
    for (int64_t j = 0; j < a->k; ++j) {
      sum += a->weights[j] * get(a->table + a->rows[j] * a->table_stride, i, a->table_bf16);
    }
    a->out[i] += sum;
  }
}

}  // namespace

void fill_vision_ref(KernelTable* t) {
  t->layer_norm_row = layer_norm_row;
  t->activate_row = activate_row;
  t->interpolate_row = interpolate_row;
}

}  // namespace tern::kernels
