#include "ops/cpu/kv_write_cpu.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "device/tensor.h"
#include "ops/quantize.h"

namespace tern::ops::cpu {
namespace {

using kernels::KernelTable;

void write_values(const KernelTable& t, const KvLayerView& cache, char* base, const SlotRun& run) {
  const KvSpec& s = cache.spec;
  const int64_t offset = run.slot % s.block_size;
  const auto bytes = static_cast<int64_t>(dtype_bytes(s.dtype));
  const int64_t k_row = s.head_dim_k * bytes, v_row = s.head_dim_v * bytes;
  char* v_base = base + s.kv_heads * k_row * s.block_size;
  for (int64_t h = 0; h < s.kv_heads; ++h) {
    // A K head is 32-bit words [d/2 or d][token].
    auto* words = reinterpret_cast<uint32_t*>(base + h * k_row * s.block_size) + offset;
    t.transpose32(run.k + h * k_row, run.stride, words, s.block_size, run.count, k_row / 4);
    char* to = v_base + h * v_row * s.block_size;
    const char* from = run.v + h * v_row;
    for (int64_t i = 0; i < run.count;) {
      const int64_t at = offset + i;
      const char* row = from + i * run.stride;
      if (s.dtype == DType::kF32) {
        std::memcpy(to + at * v_row, row, static_cast<size_t>(v_row));
        ++i;
        continue;
      }
      auto* pair = reinterpret_cast<uint16_t*>(to) + at / 2 * 2 * s.head_dim_v;
      const auto* a = reinterpret_cast<const uint16_t*>(row);
      const bool both = at % 2 == 0 && i + 1 < run.count;
      if (both) {
        t.interleave16(a, reinterpret_cast<const uint16_t*>(row + run.stride), pair, s.head_dim_v);
      } else {
        t.scatter16(a, pair + at % 2, s.head_dim_v);
      }
      i += both ? 2 : 1;
    }
  }
}

// A head of one token to codes; returns its scale. Values that are no numbers, or infinite, make the scale NaN, so that
// whoever reads them sees it. `known`: null, or the scale, `channels` of them where each value has its own.
float encode_head(const KernelTable& t, const KvSpec& s, const char* x, int bf16, int64_t n, const float* known,
                  bool channels, uint8_t* codes) {
  const DType kind = s.quantized() ? s.dtype : s.rounded;
  const float bound = s.code_bound();
  const auto type = bf16 != 0 ? DType::kBF16 : DType::kF32;
  float scale = scale_of({.bound = bound}, tensor2(const_cast<char*>(x), type, 1, n), 0, n);
  if (scale < 0.0f) {
    std::memset(codes, 0, static_cast<size_t>(n));
    return std::numeric_limits<float>::quiet_NaN();
  }
  float apart[kCodeHeadValues];
  if (known != nullptr && channels) {
    if (bf16 != 0) {
      t.widen(reinterpret_cast<const uint16_t*>(x), apart, n);
    } else {
      std::memcpy(apart, x, static_cast<size_t>(n) * sizeof(float));
    }
    for (int64_t i = 0; i < n; ++i) apart[i] /= known[i];
    x = reinterpret_cast<const char*>(apart), bf16 = 0, scale = 1.0f;
  } else if (known != nullptr) {
    scale = *known;
  }
  if (kind == DType::kI8) {
    t.codes.encode_int(x, bf16, scale, bound, codes, n);
  } else {
    t.codes.encode_e4m3(x, bf16, scale, codes, n);
  }
  return scale;
}

double code_value(DType kind, uint8_t code) {
  if (kind == DType::kI8) return static_cast<int8_t>(code);
  const int exponent = code >> 3 & 15, mantissa = code & 7;
  const double a = exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
  return (code & 0x80) != 0 ? -a : a;
}

const float* known_scales(const KvLayerView& cache, bool key, int64_t head, int64_t dim) {
  const float* all = key ? cache.scales.k : cache.scales.v;
  return all == nullptr ? nullptr : all + (cache.scales.channels ? head * dim : head);
}

// float32 values of tokens to what their codes hold.
void round_values(const KernelTable& t, const KvLayerView& cache, const SlotRun& run) {
  const KvSpec& s = cache.spec;
  uint8_t codes[kCodeHeadValues];
  for (int64_t part = 0; part < 2 * s.kv_heads; ++part) {
    const bool key = part < s.kv_heads;
    const int64_t h = key ? part : part - s.kv_heads, dim = key ? s.head_dim_k : s.head_dim_v;
    const float* known = known_scales(cache, key, h, dim);
    for (int64_t i = 0; i < run.count; ++i) {
      const char* x = (key ? run.k : run.v) + i * run.stride + h * dim * 4;
      const float scale = encode_head(t, s, x, 0, dim, known, cache.scales.channels, codes);
      auto* values = reinterpret_cast<float*>(const_cast<char*>(x));
      for (int64_t d = 0; d < dim; ++d) {
        const bool by_channel = known != nullptr && cache.scales.channels;
        values[d] = static_cast<float>(code_value(s.rounded, codes[d]) * static_cast<double>(scale) *
                                       (by_channel ? static_cast<double>(known[d]) : 1.0));
      }
    }
  }
}

// Codes of tokens to a V head, of which four tokens' stand side by side.
void scatter_codes(const uint8_t* codes, int64_t dim, int64_t offset, int64_t count, char* head) {
  for (int64_t i = 0; i < count;) {
    const int64_t at = offset + i;
    auto* to = reinterpret_cast<uint8_t*>(head) + at / 4 * 4 * dim + at % 4;
    const uint8_t* from = codes + i * dim;
    const bool all = at % 4 == 0 && i + 4 <= count;
    for (int64_t d = 0; d < dim; ++d) {
      to[4 * d] = from[d];
      if (all) to[4 * d + 1] = from[dim + d], to[4 * d + 2] = from[2 * dim + d], to[4 * d + 3] = from[3 * dim + d];
    }
    i += all ? 4 : 1;
  }
}

void write_codes(const KernelTable& t, const KvLayerView& cache, char* base, const SlotRun& run) {
  const KvSpec& s = cache.spec;
  const int64_t offset = run.slot % s.block_size, bytes = run.bf16 != 0 ? 2 : 4;
  auto* scales = reinterpret_cast<float*>(base + s.scales_offset()) + offset;
  uint8_t codes[kRunTokens * kCodeHeadValues];
  char* head = base;
  for (int64_t part = 0; part < 2 * s.kv_heads; ++part) {
    const bool key = part < s.kv_heads;
    const int64_t h = key ? part : part - s.kv_heads, dim = key ? s.head_dim_k : s.head_dim_v;
    const char* from = (key ? run.k : run.v) + h * dim * bytes;
    const float* known = known_scales(cache, key, h, dim);
    for (int64_t i = 0; i < run.count; ++i) {
      scales[part * s.block_size + i] =
          encode_head(t, s, from + i * run.stride, run.bf16, dim, known, cache.scales.channels, codes + i * dim);
    }
    if (key) {
      // A K head is 32-bit words [d/4][token].
      t.transpose32(codes, dim, reinterpret_cast<uint32_t*>(head) + offset, s.block_size, run.count, dim / 4);
    } else {
      scatter_codes(codes, dim, offset, run.count, head);
    }
    head += dim * s.block_size;
  }
}

}  // namespace

void write_run(const KernelTable& t, const KvLayerView& cache, const SlotRun& run) {
  char* base = cache.base + static_cast<size_t>(run.slot / cache.spec.block_size) * cache.block_stride;
  if (cache.spec.quantized()) {
    write_codes(t, cache, base, run);
  } else {
    if (cache.spec.rounded != DType::kF32) round_values(t, cache, run);
    write_values(t, cache, base, run);
  }
}

}  // namespace tern::ops::cpu
