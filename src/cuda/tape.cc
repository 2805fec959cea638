// What is put off on a tape, and how it is laid out for one launch.
#include "cuda/tape.h"

#include <algorithm>

#include "cuda/cuda_ops.h"
#include "cuda/gemm.h"

namespace tern::cuda {
namespace {

bool at16(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

// A norm whose result the next product reads may be done by every block for itself: a wait less for all of them.
bool norm_in_product(const TapeStep& norm, const TapeStep& next, int rows) {
  if (norm.product.n != 0 || next.product.n == 0) return false;
  if (next.product.x != norm.norm.y || next.product.k != norm.norm.width) return false;
  return int64_t{rows} * norm.norm.width <= kTapeNormed && (rows == 1 || norm.norm.width <= 1024);
}

// How many norms that add to a sum may be joined with the products behind them: the first ones, of one sum, in pairs. A
// block may still read the old sum while another writes the new one, so sums go to a spare place and back in turn.
int joined_sums(const Tape& tape) {
  const float* home = nullptr;
  int count = 0;
  for (int i = 0; i < tape.count; ++i) {
    const TapeNorm& norm = tape.steps[i].norm;
    if (norm.width == 0 || norm.residual == nullptr) continue;
    if (home == nullptr) home = norm.sum;
    if (i + 1 == tape.count || norm.sum != home || !norm_in_product(tape.steps[i], tape.steps[i + 1], tape.rows)) break;
    ++count;
  }
  return count / 2 * 2;
}

// Joins norms with the products behind them; `spare` has room for a sum.
void join_norms(Tape& tape, float* spare) {
  const int sums = joined_sums(tape);
  int turns = 0, to = 0;
  for (int i = 0; i < tape.count; ++i) {
    TapeStep step = tape.steps[i];
    const bool adds = step.norm.residual != nullptr;
    if (i + 1 < tape.count && (!adds || turns < sums) && norm_in_product(step, tape.steps[i + 1], tape.rows)) {
      if (adds && turns++ % 2 == 0) {
        step.norm.sum = spare, step.norm.sum_row = step.norm.width;
      } else if (adds) {
        step.norm.residual = spare, step.norm.residual_row = step.norm.width;
      }
      step.product = tape.steps[++i].product;
      step.product.x = nullptr;
    }
    tape.steps[to++] = step;
  }
  tape.count = to;
}

// Into how many parts k is cut where a norm behind the product adds them up: so that no block is left without rows. Of
// many rows the norm would have too much to read.
int parts_of(const TapeProduct& p, int rows, int blocks) {
  return rows > 2 ? 1 : std::min({p.k / 512, blocks / (p.n / 16), kTapeParts});
}

void cut_products(Tape& tape, int blocks, float* room, int64_t floats) {
  for (int i = 0; i + 1 < tape.count; ++i) {
    TapeProduct& p = tape.steps[i].product;
    TapeNorm& norm = tape.steps[i + 1].norm;
    const bool sums = p.n > 0 && !p.gated && !p.out_bf16 && p.bias == nullptr && norm.width == p.n && norm.x == p.out;
    if (!sums) continue;
    const int parts = parts_of(p, tape.rows, blocks);
    const int64_t size = int64_t{tape.rows} * p.n;
    if (parts < 2 || size * parts > floats) continue;
    p.parts = norm.parts = parts;
    p.out = room, p.out_row = p.n, p.part_stride = size;
    norm.x = room, norm.x_row = p.n, norm.part_stride = size;
  }
}

Status append(const TapeStep& step, int rows, device::Stream stream) {
  Tape& tape = state(stream).tape;
  if (tape.count == kTapeSteps || (tape.count > 0 && tape.rows != rows)) TERN_RETURN_IF_ERROR(play_tape(stream));
  tape.rows = rows;
  tape.steps[tape.count++] = step;
  return {};
}

}  // namespace

// More rows than one: products of their own are as fast, for no block then normalizes for itself.
void open_tape(device::Stream stream, int64_t rows, bool always) {
  StreamState& s = state(stream);
  const bool hopper = s.arch >= 90 && s.arch < 100 && s.smem_limit >= 227 * 1024;
  s.tape.open = hopper && !s.deterministic && s.parts != nullptr && rows > 0 && rows <= (always ? kTapeRows : 1);
  s.tape.least = always ? 0 : kTapeWeight;
}

Status close_tape(device::Stream stream) {
  const Status played = play_tape(stream);
  state(stream).tape.open = false;
  return played;
}

// Smaller weights are over before the blocks have waited for each other.
bool tape_fits(const Gemm& g, device::Stream stream) {
  const Tape& tape = state(stream).tape;
  return tape.open && g.n * g.k >= tape.least && g.x_bf16 && g.w_bf16 && g.rows <= kTapeRows && g.offsets == nullptr &&
         !g.heads && !g.gelu && mma_fits(g) && g.k % 32 == 0 && g.n % 16 == 0 && g.k >= 256 && g.n < (1 << 30);
}

// A tape begins with a product: a norm alone is no reason for one.
bool tape_fits(const ops::RmsNormParams& p, device::Stream stream) {
  const auto rows = [](const TensorView& v) { return at16(v.data) && v.stride[0] % 8 == 0; };
  const int64_t n = p.x.dim[1];
  return state(stream).tape.count > 0 && p.x.rank == 2 && p.x.dim[0] > 0 && p.x.dim[0] <= kTapeRows && n % 8 == 0 &&
         n <= kTapeNormed && p.x.dtype == DType::kF32 && p.out.dtype == DType::kBF16 && rows(p.x) && rows(p.out) &&
         at16(p.weight.data) && (p.residual.data == nullptr || (p.residual.dtype == DType::kF32 && rows(p.residual)));
}

Status tape_product(const Gemm& g, const void* weight, device::Stream stream) {
  TapeStep step;
  step.product = {.weight = weight,
                  .w_row = g.w_row,
                  .x_row = g.x_row,
                  .out_row = g.out_row,
                  .x = g.x,
                  .bias = g.bias,
                  .out = g.out,
                  .out_bf16 = g.out_bf16,
                  .gated = g.gated,
                  .n = static_cast<int>(g.n),
                  .k = static_cast<int>(g.k)};
  return append(step, static_cast<int>(g.rows), stream);
}

Status tape_norm(const ops::RmsNormParams& p, device::Stream stream) {
  TapeStep step;
  step.norm = {.x = p.x.as<const float>(),
               .x_row = p.x.stride[0],
               .residual = p.residual.as<const float>(),
               .sum = p.residual.as<float>(),
               .residual_row = p.residual.stride[0],
               .sum_row = p.residual.stride[0],
               .weight = p.weight.data,
               .weight_bf16 = p.weight.dtype == DType::kBF16,
               .eps = p.eps,
               .y = p.out.data,
               .y_row = p.out.stride[0],
               .width = static_cast<int>(p.x.dim[1])};
  return append(step, static_cast<int>(p.x.dim[0]), stream);
}

Status play_tape(device::Stream stream) {
  StreamState& s = state(stream);
  if (s.tape.count == 0) return {};
  Tape tape = s.tape;
  s.tape.count = 0;
  float* room = reinterpret_cast<float*>(s.parts);
  join_norms(tape, room);
  cut_products(tape, s.multiprocessors, room + kTapeNormed,
               static_cast<int64_t>(walk_bytes(s.multiprocessors) / sizeof(float)) - kTapeNormed);
  return launch_tape(tape, stream);
}

}  // namespace tern::cuda
