// What is put off on a tape, and how it is laid out for one launch.
#include "cuda/tape.h"

#include "cuda/cuda_ops.h"
#include "cuda/gemm.h"

namespace tern::cuda {
namespace {

bool at16(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

// A norm whose result the next product reads may be done by every block for itself: a wait less for all of them.
bool norm_in_product(const TapeStep& norm, const TapeStep& next) {
  return norm.product.n == 0 && next.product.n != 0 && next.product.x == norm.norm.y &&
         next.product.k == norm.norm.width;
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
    if (i + 1 == tape.count || norm.sum != home || !norm_in_product(tape.steps[i], tape.steps[i + 1])) break;
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
    if (i + 1 < tape.count && (!adds || turns < sums) && norm_in_product(step, tape.steps[i + 1])) {
      if (adds && turns++ % 2 == 0) {
        step.norm.sum = spare;
      } else if (adds) {
        step.norm.residual = spare;
      }
      step.product = tape.steps[++i].product;
      step.product.x = nullptr;
    }
    tape.steps[to++] = step;
  }
  tape.count = to;
}

Status append(const TapeStep& step, device::Stream stream) {
  Tape& tape = state(stream).tape;
  TERN_RETURN_IF_ERROR(play_joint(stream));
  if (tape.count == kTapeSteps) TERN_RETURN_IF_ERROR(play_tape(stream));
  tape.steps[tape.count++] = step;
  return {};
}

}  // namespace

// Of more rows than one, products of their own are as fast.
void open_tape(device::Stream stream, int64_t rows, bool always) {
  StreamState& s = state(stream);
  const bool hopper = s.arch >= 90 && s.arch < 100 && s.smem_limit >= 227 * 1024;
  s.tape.open = hopper && !s.deterministic && s.parts != nullptr && rows == 1;
  s.tape.least = always ? 0 : kTapeWeight;
  s.joint.open = hopper && !s.deterministic && s.squares != nullptr && rows <= kJointRows;
  s.joint.any = hopper;
}

Status close_tape(device::Stream stream) {
  const Status played = play_tape(stream);
  state(stream).tape.open = state(stream).joint.open = state(stream).joint.any = false;
  return played;
}

// Smaller weights are over before the blocks have waited for each other.
bool tape_fits(const Gemm& g, device::Stream stream) {
  const Tape& tape = state(stream).tape;
  return tape.open && g.n * g.k >= tape.least && g.x_bf16 && g.w_bf16 && g.rows == 1 && g.offsets == nullptr &&
         !g.heads && !g.gelu && mma_fits(g) && g.k % 32 == 0 && g.n % 16 == 0 && g.k >= 256 && g.n < (1 << 24);
}

// A tape begins with a product: a norm alone is no reason for one.
bool tape_fits(const ops::RmsNormParams& p, device::Stream stream) {
  const int64_t n = p.x.dim[1];
  return state(stream).tape.count > 0 && p.x.rank == 2 && p.x.dim[0] == 1 && n % 8 == 0 && n <= kTapeNormed &&
         p.x.dtype == DType::kF32 && p.out.dtype == DType::kBF16 && at16(p.x.data) && at16(p.out.data) &&
         at16(p.weight.data) && at16(p.residual.data);
}

Status tape_product(const Gemm& g, const void* weight, device::Stream stream) {
  TapeStep step;
  step.product = {.weight = weight,
                  .w_row = g.w_row,
                  .x = g.x,
                  .bias = g.bias,
                  .out = g.out,
                  .out_bf16 = g.out_bf16,
                  .gated = g.gated,
                  .n = static_cast<int>(g.n),
                  .k = static_cast<int>(g.k)};
  return append(step, stream);
}

Status tape_norm(const ops::RmsNormParams& p, device::Stream stream) {
  TapeStep step;
  step.norm = {.x = p.x.as<const float>(),
               .residual = p.residual.as<const float>(),
               .sum = p.residual.as<float>(),
               .weight = p.weight.data,
               .weight_bf16 = p.weight.dtype == DType::kBF16,
               .eps = p.eps,
               .y = p.out.data,
               .width = static_cast<int>(p.x.dim[1])};
  return append(step, stream);
}

Status play_tape(device::Stream stream) {
  StreamState& s = state(stream);
  if (s.tape.count == 0) return play_joint(stream);
  Tape tape = s.tape;
  s.tape.count = 0;
  join_norms(tape, reinterpret_cast<float*>(s.parts));
  return launch_tape(tape, stream);
}

}  // namespace tern::cuda
