// Attention inside packed segments on a CPU. Keys and values are first packed into tiles of 64 tokens in the form that
// the matrix kernels read, tiles starting afresh with each segment, many short segments in waves; then units of up to
// 48 queries of one head walk over the tiles of their segment as an online softmax. A row's chain of operations is
// fixed by its segment alone.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>

#include "base/checked.h"
#include "kernels/cpu/isa.h"
#include "ops/cpu/attention_cpu.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/op_check.h"

namespace tern::ops::cpu {
namespace {

constexpr float kLog2E = 1.44269504088896340736f;

struct Job {
  const kernels::KernelTable* kernels = nullptr;
  TensorView q, k, v, out;
  const int32_t* starts = nullptr;
  int64_t segments = 0, heads = 0, dim = 0;
  bool pairs = false;  // products of bf16 values
  bool dot = false;    // through gemm_bf16
  float scale_log2 = 1.0f;
  char* tiles = nullptr;    // [tile, head] of K then V
  char* threads = nullptr;  // scratch

  int64_t width() const { return round_up<int64_t>(dim, 16); }
  int64_t element() const { return pairs ? 2 : 4; }
  int64_t k_bytes() const { return dim * kTile * element(); }
  int64_t tile_bytes() const { return round_up<int64_t>(k_bytes() + width() * kTile * element(), 64); }
  int64_t length(int64_t s) const { return starts[s + 1] - starts[s]; }
};

// One thread's memory.
struct Scratch {
  char* rows;  // [kTile, dim] of converted values, f32 size
  char* q;     // [kUnitRows, dim] f32 or bf16
  float* s;    // [kUnitRows, kTile]
  char* p;     // [kUnitRows, kTile] f32 or bf16
  float* acc;  // [kUnitRows, width]
  float *m, *l;
  int32_t* valid;
};

int64_t scratch_bytes(int64_t dim) {
  const int64_t width = round_up<int64_t>(dim, 16);
  return round_up<int64_t>(kTile * dim * 4 + kUnitRows * (dim + 2 * kTile + width + 3) * 4 + 8 * 64, 64);
}

Scratch scratch_of(const Job& j, int thread) {
  char* p = j.threads + thread * scratch_bytes(j.dim);
  auto take = [&p](int64_t bytes) {
    char* at = p;
    p += round_up<int64_t>(bytes, 64);
    return at;
  };
  Scratch s{};
  s.rows = take(kTile * j.dim * 4);
  s.q = take(kUnitRows * j.dim * 4);
  s.s = reinterpret_cast<float*>(take(kUnitRows * kTile * 4));
  s.p = take(kUnitRows * kTile * 4);
  s.acc = reinterpret_cast<float*>(take(kUnitRows * j.width() * 4));
  s.m = reinterpret_cast<float*>(take(kUnitRows * 4));
  s.l = reinterpret_cast<float*>(take(kUnitRows * 4));
  s.valid = reinterpret_cast<int32_t*>(take(kUnitRows * 4));
  return s;
}

int64_t tiles_of(int64_t length) { return (length + kTile - 1) / kTile; }
int64_t units_of(int64_t length) { return (length + kUnitRows - 1) / kUnitRows; }

const char* head_row(const TensorView& x, int64_t row, int64_t head) {
  return x.row_bytes(row) + head * x.stride[1] * static_cast<int64_t>(dtype_bytes(x.dtype));
}

// Row values as the tiles keep them; `copy` is where they go when they must be converted.
const char* converted(const Job& j, const TensorView& x, int64_t row, int64_t head, char* copy) {
  const char* src = head_row(x, row, head);
  if ((x.dtype == DType::kBF16) == j.pairs) return src;
  if (j.pairs) {
    j.kernels->narrow(reinterpret_cast<const float*>(src), reinterpret_cast<uint16_t*>(copy), j.dim);
  } else {
    j.kernels->widen(reinterpret_cast<const uint16_t*>(src), reinterpret_cast<float*>(copy), j.dim);
  }
  return copy;
}

void pack_keys(const Job& j, int64_t row0, int64_t count, int64_t head, char* dst, const Scratch& s) {
  const int64_t row_bytes = j.dim * j.element(), words = row_bytes / 4;
  if (count < kTile) std::memset(dst, 0, static_cast<size_t>(j.k_bytes()));
  auto* out = reinterpret_cast<uint32_t*>(dst);
  if ((j.k.dtype == DType::kBF16) == j.pairs) {
    const int64_t stride = j.k.stride[0] * static_cast<int64_t>(dtype_bytes(j.k.dtype));
    j.kernels->transpose32(head_row(j.k, row0, head), stride, out, kTile, count, words);
    return;
  }
  for (int64_t i = 0; i < count; ++i) converted(j, j.k, row0 + i, head, s.rows + i * row_bytes);
  j.kernels->transpose32(s.rows, row_bytes, out, kTile, count, words);
}

void pack_values(const Job& j, int64_t row0, int64_t count, int64_t head, char* dst, const Scratch& s) {
  const int64_t width = j.width(), row_bytes = j.dim * j.element();
  if (count < kTile || width > j.dim) {
    std::memset(dst, 0, static_cast<size_t>(width * kTile * j.element()));
  }
  if (!j.pairs) {
    for (int64_t i = 0; i < count; ++i) {
      char* to = dst + i * width * 4;
      const char* from = converted(j, j.v, row0 + i, head, to);
      if (from != to) std::memcpy(to, from, static_cast<size_t>(row_bytes));
    }
    return;
  }
  for (int64_t i = 0; i < count; i += 2) {
    auto* to = reinterpret_cast<uint16_t*>(dst) + i * width;
    const auto* a = reinterpret_cast<const uint16_t*>(converted(j, j.v, row0 + i, head, s.rows));
    if (i + 1 < count) {
      const auto* b = reinterpret_cast<const uint16_t*>(converted(j, j.v, row0 + i + 1, head, s.rows + row_bytes));
      j.kernels->interleave16(a, b, to, j.dim);
    } else {
      for (int64_t d = 0; d < j.dim; ++d) to[2 * d] = a[d];
    }
  }
}

void load_queries(const Job& j, int64_t row0, int64_t count, int64_t head, const Scratch& s) {
  const int64_t bytes = j.dim * (j.dot ? 2 : 4);
  for (int64_t i = 0; i < count; ++i) {
    char* to = s.q + i * bytes;
    if (!j.pairs || j.dot) {
      const char* from = converted(j, j.q, row0 + i, head, to);
      if (from != to) std::memcpy(to, from, static_cast<size_t>(bytes));
    } else {
      // Rounded, but multiplied as float32.
      const char* from = converted(j, j.q, row0 + i, head, s.rows);
      j.kernels->widen(reinterpret_cast<const uint16_t*>(from), reinterpret_cast<float*>(to), j.dim);
    }
  }
}

void run_tile(const Job& j, const char* tile, int64_t count, int64_t rows, bool first, const Scratch& s) {
  const auto& t = *j.kernels;
  const auto gemm = j.dot ? t.gemm_bf16 : j.pairs ? t.gemm_f32_bf16 : t.gemm_f32;
  kernels::GemmArgs a{};
  a.x = s.q, a.ldx = j.dim;
  a.w = tile, a.ldw = j.pairs ? 2 * kTile : kTile;
  a.acc = s.s, a.ld_acc = kTile;
  a.rows = rows, a.cols = std::min(round_up<int64_t>(count, 16), kTile);
  a.ksteps = j.pairs ? j.dim / 2 : j.dim;
  gemm(&a);

  std::fill_n(s.valid, rows, static_cast<int32_t>(count));
  kernels::SoftmaxTile soft{};
  soft.s = s.s, soft.ld_s = kTile;
  soft.p = s.p, soft.ld_p = kTile, soft.p_bf16 = j.dot;
  soft.valid = s.valid, soft.m = s.m, soft.l = s.l;
  soft.acc = s.acc, soft.ld_acc = j.width(), soft.dim = first ? 0 : j.width();
  soft.rows = rows, soft.cols = std::min(round_up<int64_t>(count, 2), kTile);
  soft.scale_log2 = j.scale_log2;
  t.softmax_tile(&soft);

  a.x = s.p, a.ldx = kTile;
  a.w = tile + j.k_bytes(), a.ldw = (j.pairs ? 2 : 1) * j.width();
  a.acc = s.acc, a.ld_acc = j.width();
  a.cols = j.width();
  a.ksteps = j.pairs ? (count + 1) / 2 : count;
  a.accumulate = first ? 0 : 1;
  gemm(&a);
}

// Queries [row0, row0 + rows) of one head against the tiles of their segment.
void run_unit(const Job& j, int64_t row0, int64_t rows, int64_t head, int64_t tile0, int64_t length, const Scratch& s) {
  load_queries(j, row0, rows, head, s);
  std::fill_n(s.m, rows, -std::numeric_limits<float>::infinity());
  std::fill_n(s.l, rows, 0.0f);
  for (int64_t at = 0; at < length; at += kTile) {
    const char* tile = j.tiles + (tile0 + at / kTile * j.heads) * j.tile_bytes();
    run_tile(j, tile, std::min(kTile, length - at), rows, at == 0, s);
  }
  const auto bytes = static_cast<int64_t>(dtype_bytes(j.out.dtype));
  for (int64_t i = 0; i < rows; ++i) {
    j.kernels->store_row(s.acc + i * j.width(), nullptr, 1.0f / s.l[i],
                         j.out.row_bytes(row0 + i) + head * j.dim * bytes, j.out.dtype == DType::kBF16, j.dim);
  }
}

// Tiles that the workspace holds: those of a segment as long as the call, and of some short ones at a time.
int64_t capacity(int64_t rows) { return rows / kTile + 16; }

// Segments [first, last) whose tiles lie in the workspace together.
struct Wave {
  int64_t first = 0, last = 0, tiles = 0, units = 0;
};

Wave next_wave(const Job& j, int64_t first, int64_t room) {
  Wave w{first, first, 0, 0};
  while (w.last < j.segments) {
    const int64_t tiles = tiles_of(j.length(w.last));
    if (w.tiles + tiles > room) break;
    w.tiles += tiles;
    w.units += units_of(j.length(w.last)) * j.heads;
    ++w.last;
  }
  return w;
}

// Segments are left behind by indices that only grow: `index` counts over the wave, `count(s)` in each segment.
template <class Count>
struct Cursor {
  Count count;
  int64_t segment = 0, base = 0, tile = 0;
  void seek(const Job& j, int64_t index) {
    while (index - base >= count(segment)) {
      base += count(segment);
      tile += tiles_of(j.length(segment));
      ++segment;
    }
  }
};

template <class Count, class F>
void for_items(const Job& j, const Wave& wave, int64_t total, Count count, device::Stream stream, F&& body) {
  std::atomic<int64_t> next{0};
  for_parts(stream, static_cast<int>(std::min<int64_t>(total, thread_count(stream))), [&](int thread) {
    const Scratch s = scratch_of(j, thread);
    Cursor<Count> cursor{count, wave.first};
    for (int64_t i = next.fetch_add(1); i < total; i = next.fetch_add(1)) {
      cursor.seek(j, i);
      body(cursor.segment, i - cursor.base, cursor.tile, s);
    }
  });
}

void run_wave(const Job& j, const Wave& wave, device::Stream stream) {
  const auto pack = [&j](int64_t segment, int64_t index, int64_t tile0, const Scratch& s) {
    const int64_t count = std::min(kTile, j.length(segment) - index * kTile), row0 = j.starts[segment] + index * kTile;
    for (int64_t head = 0; head < j.heads; ++head) {
      char* tile = j.tiles + ((tile0 + index) * j.heads + head) * j.tile_bytes();
      pack_keys(j, row0, count, head, tile, s);
      pack_values(j, row0, count, head, tile + j.k_bytes(), s);
    }
  };
  const auto attend = [&j](int64_t segment, int64_t index, int64_t tile0, const Scratch& s) {
    // Head by head: its keys and values stay in the second cache while the threads walk over its queries.
    const int64_t length = j.length(segment), blocks = units_of(length), head = index / blocks;
    const int64_t at = index % blocks * kUnitRows;
    run_unit(j, j.starts[segment] + at, std::min(kUnitRows, length - at), head, tile0 * j.heads + head, length, s);
  };
  for_items(
      j, wave, wave.tiles, [&j](int64_t s) { return tiles_of(j.length(s)); }, stream, pack);
  for_items(
      j, wave, wave.units, [&j](int64_t s) { return units_of(j.length(s)) * j.heads; }, stream, attend);
}

int64_t tile_bytes(int64_t dim, DType product) {
  Job j;
  j.dim = dim, j.pairs = product == DType::kBF16;
  return j.tile_bytes();
}

bool are_heads(const TensorView& v, const TensorView& like) {
  return is_act(v.dtype) && v.rank == 3 && is_rows(v) && v.dim[0] == like.dim[0] && v.dim[1] == like.dim[1] &&
         v.dim[2] == like.dim[2];
}

}  // namespace

Status segment_attention(const SegmentAttentionParams& p, device::Stream stream) {
  constexpr const char* kOp = "segment_attention";
  TERN_OP_CHECK(kOp, are_heads(p.q, p.q) && are_heads(p.k, p.q) && are_heads(p.v, p.q),
                "q, k and v must be [T, heads, D] of float32 or bfloat16");
  const int64_t rows = p.q.dim[0], heads = p.q.dim[1], dim = p.q.dim[2];
  TERN_OP_CHECK(kOp, dim >= 8 && dim % 8 == 0, "the head size must be a multiple of 8");
  TERN_OP_CHECK(kOp, is_act(p.product), "products are of float32 or bfloat16 values");
  TERN_OP_CHECK(kOp, is_act(p.out.dtype) && is_matrix(p.out, rows, heads * dim), "out must be [T, heads * D]");
  TERN_OP_CHECK(kOp, p.starts.dim[0] >= 1 && is_vector(p.starts, DType::kI32, p.starts.dim[0]),
                "starts must be [S + 1] int32");
  const int64_t segments = p.starts.dim[0] - 1;
  const auto* starts = p.starts.as<const int32_t>();
  TERN_OP_CHECK(kOp, starts[0] == 0 && starts[segments] == rows, "starts must lead from 0 to T");
  for (int64_t s = 0; s < segments; ++s) TERN_OP_CHECK(kOp, starts[s] <= starts[s + 1], "starts must ascend");
  if (rows == 0) return {};
  TERN_OP_CHECK(kOp, p.workspace != nullptr, "memory is missing");
  if (p.cos.data != nullptr) {
    for (const TensorView& x : {p.q, p.k})
      TERN_RETURN_IF_ERROR(rope({x, p.cos, p.sin, RopeStyle::kHalfSplit, {}}, stream));
  }
  Job j;
  j.kernels = &kernels::kernel_table();
  j.q = p.q, j.k = p.k, j.v = p.v, j.out = p.out;
  j.starts = starts, j.segments = segments, j.heads = heads, j.dim = dim;
  j.pairs = p.product == DType::kBF16;
  j.dot = j.pairs && j.kernels->gemm_bf16 != nullptr;
  j.scale_log2 = p.scale * kLog2E;
  j.threads = static_cast<char*>(p.workspace);
  j.tiles = j.threads + thread_count(stream) * scratch_bytes(dim);
  for (Wave w; w.last < segments;) {
    w = next_wave(j, w.last, capacity(rows));
    run_wave(j, w, stream);
  }
  return {};
}

size_t segment_attention_workspace(device::Stream stream, int64_t max_rows, int64_t, int heads, int head_dim) {
  if (max_rows <= 0 || heads <= 0 || head_dim <= 0) return 0;
  return static_cast<size_t>(thread_count(stream) * scratch_bytes(head_dim) +
                             capacity(max_rows) * heads * tile_bytes(head_dim, DType::kF32));
}

}  // namespace tern::ops::cpu
