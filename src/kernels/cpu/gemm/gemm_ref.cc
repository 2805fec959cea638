// Plain loops: the oracle of the matrix kernels, and what runs on a CPU without AVX2.
#include <cstring>

#include "base/bf16.h"
#include "kernels/cpu/ref.h"

namespace tern::kernels {
namespace {

float widen1(uint16_t bits) { return to_float(bf16{bits}); }

void gemm_f32_bf16(const GemmArgs* a) {
  const auto* x = static_cast<const float*>(a->x);
  const auto* w = static_cast<const uint16_t*>(a->w);
  for (int64_t r = 0; r < a->rows; ++r) {
    float* acc = a->acc + r * a->ld_acc;
    if (a->accumulate == 0) {
      for (int64_t c = 0; c < a->cols; ++c) acc[c] = 0.0f;
    }
    for (int64_t k = 0; k < a->ksteps; ++k) {
      const float x0 = x[r * a->ldx + 2 * k], x1 = x[r * a->ldx + 2 * k + 1];
      const uint16_t* row = w + k * a->ldw;
      for (int64_t c = 0; c < a->cols; ++c) {
        acc[c] += x0 * widen1(row[2 * c]);
        acc[c] += x1 * widen1(row[2 * c + 1]);
      }
    }
  }
}

void gemm_f32(const GemmArgs* a) {
  const auto* x = static_cast<const float*>(a->x);
  const auto* w = static_cast<const float*>(a->w);
  for (int64_t r = 0; r < a->rows; ++r) {
    float* acc = a->acc + r * a->ld_acc;
    if (a->accumulate == 0) {
      for (int64_t c = 0; c < a->cols; ++c) acc[c] = 0.0f;
    }
    for (int64_t k = 0; k < a->ksteps; ++k) {
      const float x0 = x[r * a->ldx + k];
      const float* row = w + k * a->ldw;
      for (int64_t c = 0; c < a->cols; ++c) acc[c] += x0 * row[c];
    }
  }
}

void transpose32(const void* src, int64_t src_stride, uint32_t* dst, int64_t ld_dst, int64_t rows, int64_t cols) {
  for (int64_t r = 0; r < rows; ++r) {
    const char* row = static_cast<const char*>(src) + r * src_stride;
    for (int64_t c = 0; c < cols; ++c) std::memcpy(dst + c * ld_dst + r, row + 4 * c, 4);
  }
}

void interleave16(const uint16_t* a, const uint16_t* b, uint16_t* dst, int64_t n) {
  for (int64_t i = 0; i < n; ++i) dst[2 * i] = a[i], dst[2 * i + 1] = b[i];
}

void scatter16(const uint16_t* a, uint16_t* dst, int64_t n) {
  for (int64_t i = 0; i < n; ++i) dst[2 * i] = a[i];
}

void widen(const uint16_t* src, float* dst, int64_t n) {
  for (int64_t i = 0; i < n; ++i) dst[i] = widen1(src[i]);
}

void narrow(const float* src, uint16_t* dst, int64_t n) {
  for (int64_t i = 0; i < n; ++i) dst[i] = to_bf16(src[i]).bits;
}

void fill_gemm_ref(KernelTable* t) {
  t->stream_rows = 1;
  t->gemm_bf16 = nullptr;
  t->gemm_f32_bf16 = gemm_f32_bf16;
  t->gemm_f32 = gemm_f32;
  t->transpose32 = transpose32;
  t->interleave16 = interleave16;
  t->scatter16 = scatter16;
  t->widen = widen;
  t->narrow = narrow;
}

}  // namespace

void fill_scalar(KernelTable* table) {
  fill_gemm_ref(table);
  fill_rows_ref(table);
  fill_vision_ref(table);
  fill_codes_ref(table);
}

}  // namespace tern::kernels
