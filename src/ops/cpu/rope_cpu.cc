#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/checked.h"
#include "kernels/cpu/isa.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/kv_write_cpu.h"
#include "ops/op_check.h"

namespace tern::ops::cpu {
namespace {

using kernels::KernelTable;

// Null when cos and sin fit x's rows and head size, else what is wrong.
const char* check_tables(const TensorView& cos, const TensorView& sin, int64_t rows, int64_t head_dim) {
  if (cos.dtype != DType::kF32 || cos.rank != 2 || !is_rows(cos) || cos.dim[0] != rows)
    return "cos must be [T, d/2] f32";
  if (sin.dtype != DType::kF32 || !is_matrix(sin, rows, cos.dim[1])) return "sin must be like cos";
  return 2 * cos.dim[1] > head_dim ? "the rotated part is wider than a head" : nullptr;
}

}  // namespace

Status rope_table(const RopeTableParams& p, device::Stream stream) {
  constexpr const char* kOp = "rope_table";
  const int64_t half = p.inv_freq.dim[0], n = p.cos.dim[0];
  TERN_OP_CHECK(kOp, is_vector(p.inv_freq, DType::kF32, half) && half > 0, "inv_freq must be [d/2] float32");
  TERN_OP_CHECK(kOp, is_vector(p.axis, DType::kU8, half), "axis must be [d/2] uint8");
  TERN_OP_CHECK(kOp, p.cos.dtype == DType::kF32 && is_matrix(p.cos, n, half), "cos must be [T, d/2] float32");
  TERN_OP_CHECK(kOp, p.sin.dtype == DType::kF32 && is_matrix(p.sin, n, half), "sin must be [T, d/2] float32");
  if (n == 0) return {};
  TERN_OP_CHECK(kOp, p.positions.dtype == DType::kI32 && is_matrix(p.positions, 3, n),
                "positions must be [3, T] int32");
  const auto* axis = p.axis.as<const uint8_t>();
  const auto* freq = p.inv_freq.as<const float>();
  for (int64_t i = 0; i < half; ++i) TERN_OP_CHECK(kOp, axis[i] < 3, "an axis is not 0, 1 or 2");
  for_ranges(stream, n, row_grain(32 * half), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      auto *cos = reinterpret_cast<float*>(p.cos.row_bytes(t)), *sin = reinterpret_cast<float*>(p.sin.row_bytes(t));
      for (int64_t i = 0; i < half; ++i) {
        const int32_t position = reinterpret_cast<const int32_t*>(p.positions.row_bytes(axis[i]))[t];
        // The angle is a float32 product as in the references; its cosine is then exact to the last bit.
        const double angle = static_cast<float>(position) * freq[i];
        cos[i] = p.factor * static_cast<float>(std::cos(angle));
        sin[i] = p.factor * static_cast<float>(std::sin(angle));
      }
    }
  });
  return {};
}

Status rope(const RopeParams& p, device::Stream stream) {
  constexpr const char* kOp = "rope";
  TERN_OP_CHECK(kOp, is_act(p.x.dtype) && p.x.rank == 3 && is_rows(p.x), "x must be [T, heads, D]");
  const char* wrong = check_tables(p.cos, p.sin, p.x.dim[0], p.x.dim[2]);
  TERN_OP_CHECK(kOp, wrong == nullptr, wrong);
  TERN_OP_CHECK(kOp,
                p.out.data == nullptr ||
                    ((p.out.dtype == p.x.dtype || p.out.dtype == DType::kBF16) && p.out.rank == 3 && is_rows(p.out) &&
                     p.out.dim[0] == p.x.dim[0] && p.out.dim[1] == p.x.dim[1] && p.out.dim[2] == p.x.dim[2]),
                "out must be like x");
  const KernelTable& k = kernels::kernel_table();
  const auto bytes = static_cast<int64_t>(dtype_bytes(p.x.dtype));
  const auto out_bytes = static_cast<int64_t>(dtype_bytes(p.out.dtype));
  const bool narrows = p.out.data != nullptr && p.out.dtype != p.x.dtype;
  for_ranges(stream, p.x.dim[0], row_grain(p.x.dim[1] * p.x.dim[2]), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      for (int64_t h = 0; h < p.x.dim[1]; ++h) {
        char* head = p.x.row_bytes(t) + h * p.x.stride[1] * bytes;
        char* to = nullptr;
        if (p.out.data != nullptr) to = p.out.row_bytes(t) + h * p.out.stride[1] * out_bytes;
        if (to != nullptr && !narrows) {
          std::memcpy(to, head, static_cast<size_t>(p.x.dim[2] * bytes));
          head = to;
        }
        k.rope_row(head, reinterpret_cast<const float*>(p.cos.row_bytes(t)),
                   reinterpret_cast<const float*>(p.sin.row_bytes(t)), p.cos.dim[1], p.style == RopeStyle::kInterleaved,
                   p.x.dtype == DType::kBF16);
        if (narrows) k.narrow(reinterpret_cast<const float*>(head), reinterpret_cast<uint16_t*>(to), p.x.dim[2]);
      }
    }
  });
  return {};
}

namespace {

const char* check_qkv(const QkvPrepareParams& p) {
  const KvSpec& s = p.cache.spec;
  const int64_t n = p.qkv.dim[0];
  if (p.heads < 1 || p.kv_heads < 1 || p.head_dim < 8 || p.head_dim % 8 != 0)
    return "a head size is not a multiple of 8";
  if (!is_act(p.qkv.dtype) ||
      !is_matrix(p.qkv, n, (static_cast<int64_t>(p.heads) + 2 * static_cast<int64_t>(p.kv_heads)) * p.head_dim)) {
    return "qkv must be [T, (heads + 2 * kv_heads) * D]";
  }
  for (const TensorView* w : {&p.q_norm, &p.k_norm}) {
    if (w->data != nullptr && (!is_act(w->dtype) || !is_vector(*w, w->dtype, p.head_dim))) return "a norm must be [D]";
  }
  const bool rounds = s.rounded != DType::kF32;
  if (rounds &&
      (s.dtype != DType::kF32 || p.qkv.dtype != DType::kF32 || p.q.data == nullptr || p.head_dim > kCodeHeadValues)) {
    return "only float32 values are rounded, beside queries of their own place";
  }
  const bool type_fits = s.quantized() ? p.head_dim % 16 == 0 && p.head_dim <= kCodeHeadValues && p.q.data != nullptr
                                       : s.dtype == p.qkv.dtype || s.dtype == DType::kBF16;
  if (s.arrangement != KvArrangement::kCpuPacked || !type_fits || s.kv_heads != p.kv_heads ||
      s.head_dim_k != p.head_dim || s.head_dim_v != p.head_dim || s.block_size < 16 || s.block_size % 16 != 0 ||
      p.cache.block_stride < s.layer_block_bytes()) {
    return "the cache does not fit these heads";
  }
  if (n > 0 && p.cache.base == nullptr) return "there is no cache";
  if (!is_vector(p.slot_mapping, DType::kI64, n)) return "slot_mapping must be [T] int64";
  const bool q_type = s.quantized() ? is_act(p.q.dtype) && (p.q.dtype == p.qkv.dtype || p.q.dtype == DType::kBF16)
                                    : p.q.dtype == s.dtype;
  if (p.q.data != nullptr && (!q_type || !is_matrix(p.q, n, int64_t{p.heads} * p.head_dim))) {
    return "q must be [T, heads * D] of the cache's type";
  }
  return p.cos.data == nullptr ? nullptr : check_tables(p.cos, p.sin, n, p.head_dim);
}

// q and k heads of token t, in place.
void norm_and_rotate(const QkvPrepareParams& p, int64_t t) {
  const KernelTable& k = kernels::kernel_table();
  const auto bytes = static_cast<int64_t>(dtype_bytes(p.qkv.dtype));
  const int is_bf16 = p.qkv.dtype == DType::kBF16;
  for (int64_t h = 0; h < p.heads + p.kv_heads; ++h) {
    char* head = p.qkv.row_bytes(t) + h * p.head_dim * bytes;
    const TensorView& norm = h < p.heads ? p.q_norm : p.k_norm;
    if (norm.data != nullptr) {
      const kernels::RmsNormRow a{
          head, nullptr, norm.data, head, p.head_dim, p.eps, is_bf16, norm.dtype == DType::kBF16, is_bf16};
      k.rms_norm_row(&a);
    }
    if (p.cos.data != nullptr) {
      k.rope_row(head, reinterpret_cast<const float*>(p.cos.row_bytes(t)),
                 reinterpret_cast<const float*>(p.sin.row_bytes(t)), p.cos.dim[1], p.style == RopeStyle::kInterleaved,
                 is_bf16);
    }
  }
  if (p.cache.spec.dtype != p.qkv.dtype && !p.cache.spec.quantized()) {
    // The row is left as bfloat16 in its own first half.
    char* row = p.qkv.row_bytes(t);
    uint16_t piece[256];
    for (int64_t i = 0; i < p.qkv.dim[1]; i += 256) {
      const int64_t n = std::min<int64_t>(256, p.qkv.dim[1] - i);
      k.narrow(reinterpret_cast<const float*>(row) + i, piece, n);
      std::memcpy(row + 2 * i, piece, static_cast<size_t>(2 * n));
    }
  }
}

// Rotated queries of token t to their own place. A quantized cache leaves the row as it is, so they may be wider.
void move_queries(const QkvPrepareParams& p, int64_t t) {
  if (p.q.dtype == DType::kBF16 && p.qkv.dtype == DType::kF32 && p.cache.spec.quantized()) {
    kernels::kernel_table().narrow(reinterpret_cast<const float*>(p.qkv.row_bytes(t)),
                                   reinterpret_cast<uint16_t*>(p.q.row_bytes(t)), p.q.dim[1]);
    return;
  }
  std::memcpy(p.q.row_bytes(t), p.qkv.row_bytes(t), static_cast<size_t>(p.q.dim[1]) * dtype_bytes(p.q.dtype));
}

}  // namespace

Status qkv_prepare(const QkvPrepareParams& p, device::Stream stream) {
  const char* wrong = check_qkv(p);
  TERN_OP_CHECK("qkv_prepare", wrong == nullptr, wrong);
  const auto* slots = p.slot_mapping.as<const int64_t>();
  const int64_t bs = p.cache.spec.block_size;
  for_ranges(stream, p.qkv.dim[0], row_grain(2 * p.qkv.dim[1]), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end;) {
      int64_t next = t + 1;
      while (next < end && next - t < kRunTokens && slots[next] == slots[next - 1] + 1 && slots[next] % bs != 0) ++next;
      for (int64_t i = t; i < next; ++i) {
        norm_and_rotate(p, i);
        if (p.q.data != nullptr) move_queries(p, i);
      }
      // Padding rows name the null block, which is never read: several threads must not write it at once.
      if (slots[t] >= bs) {
        const DType left = p.cache.spec.quantized() ? p.qkv.dtype : p.cache.spec.dtype;
        const int64_t head = p.head_dim * static_cast<int64_t>(dtype_bytes(left));
        const char* k = p.qkv.row_bytes(t) + p.heads * head;
        const int64_t stride = p.qkv.stride[0] * static_cast<int64_t>(dtype_bytes(p.qkv.dtype));
        write_run(kernels::kernel_table(), p.cache,
                  {slots[t], next - t, k, k + p.kv_heads * head, stride, left == DType::kBF16});
      }
      t = next;
    }
  });
  return {};
}

Status mla_cache_write(const MlaCacheWriteParams& p, device::Stream stream) {
  constexpr const char* kOp = "mla_cache_write";
  const KvSpec& s = p.cache.spec;
  const int64_t n = p.latent.dim[0];
  TERN_OP_CHECK(kOp, is_act(p.latent.dtype) && p.latent.rank == 2 && is_rows(p.latent), "latent must be [T, rank]");
  TERN_OP_CHECK(kOp, p.rope.dtype == p.latent.dtype && p.rope.rank == 2 && is_rows(p.rope) && p.rope.dim[0] == n,
                "rope must be [T, rope_dim]");
  TERN_OP_CHECK(kOp,
                s.arrangement == KvArrangement::kMlaRows && s.dtype == p.latent.dtype && s.block_size >= 1 &&
                    s.head_dim_k == p.latent.dim[1] + p.rope.dim[1] && (n == 0 || p.cache.base != nullptr) &&
                    p.cache.block_stride >= s.layer_block_bytes(),
                "the cache does not fit these rows");
  TERN_OP_CHECK(kOp, is_vector(p.slot_mapping, DType::kI64, n), "slot_mapping must be [T] int64");
  const auto* slots = p.slot_mapping.as<const int64_t>();
  const size_t bytes = dtype_bytes(s.dtype);
  const size_t latent = static_cast<size_t>(p.latent.dim[1]) * bytes, tail = static_cast<size_t>(p.rope.dim[1]) * bytes;
  for_ranges(stream, n, row_grain(s.head_dim_k), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      if (slots[t] < s.block_size) continue;  // the null block
      char* to = p.cache.base + static_cast<size_t>(slots[t] / s.block_size) * p.cache.block_stride +
                 static_cast<size_t>(slots[t] % s.block_size) * (latent + tail);
      std::memcpy(to, p.latent.row_bytes(t), latent);
      std::memcpy(to + latent, p.rope.row_bytes(t), tail);
    }
  });
  return {};
}

}  // namespace tern::ops::cpu
