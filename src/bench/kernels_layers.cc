// What lies between the attention of one layer and the cache of the next: o, norm, gate and up, down, norm, QKV, as a
// decoder asks for them.
#include <fmt/format.h>

#include "bench/kernels.h"
#include "ops/deferral.h"
#include "ops/norm.h"

namespace tern::bench {
namespace {

struct Shape {
  const char* what;
  int64_t hidden, mixed, inner, qkv;
};
constexpr Shape kShapes[] = {{"ernie-0.3b", 1024, 2048, 3072, 2560}, {"qwen3-8b", 4096, 4096, 12288, 6144}};
constexpr int64_t kRows[] = {1, 2, 4, 8, 16, 32, 64, 100, 256};

struct Values {
  TensorView mixed, residual, delta, x, room, gated, qkv, weight;
  std::span<const ops::PackedWeight> o, gate_up, down, next;
};

Expected<Values> take(KernelBencher& bencher, const Shape& s, int64_t rows, int turns) {
  Values v;
  TERN_ASSIGN_OR_RETURN(v.o, bencher.weights(turns, s.hidden, s.mixed));
  TERN_ASSIGN_OR_RETURN(v.gate_up, bencher.weights(turns, 2 * s.inner, s.hidden));
  TERN_ASSIGN_OR_RETURN(v.down, bencher.weights(turns, s.hidden, s.inner));
  TERN_ASSIGN_OR_RETURN(v.next, bencher.weights(turns, s.qkv, s.hidden));
  TERN_ASSIGN_OR_RETURN(v.mixed, bencher.random(DType::kBF16, rows, s.mixed));
  TERN_ASSIGN_OR_RETURN(v.residual, bencher.zeros(DType::kF32, rows, s.hidden));
  TERN_ASSIGN_OR_RETURN(v.delta, bencher.zeros(DType::kF32, rows, s.hidden));
  TERN_ASSIGN_OR_RETURN(v.x, bencher.zeros(DType::kBF16, rows, s.hidden));
  TERN_ASSIGN_OR_RETURN(v.room, bencher.zeros(DType::kF32, rows, 2 * s.inner));
  TERN_ASSIGN_OR_RETURN(v.gated, bencher.zeros(DType::kBF16, rows, s.inner));
  TERN_ASSIGN_OR_RETURN(v.qkv, bencher.zeros(DType::kF32, rows, s.qkv));
  TERN_ASSIGN_OR_RETURN(v.weight, bencher.random(DType::kBF16, 1, s.hidden, 0.1f));
  v.weight = tensor1(v.weight.data, DType::kBF16, s.hidden);
  return v;
}

Status layer(const Values& v, size_t turn, device::Stream stream) {
  const ops::RmsNormParams norm{v.delta, v.residual, v.weight, v.x, 1e-5f, true};
  TERN_RETURN_IF_ERROR(ops::linear({v.mixed, &v.o[turn], {}, v.delta}, stream));
  TERN_RETURN_IF_ERROR(ops::rms_norm(norm, stream));
  TERN_RETURN_IF_ERROR(ops::gated_linear({v.x, &v.gate_up[turn], {}, v.room}, v.gated, stream));
  TERN_RETURN_IF_ERROR(ops::linear({v.gated, &v.down[turn], {}, v.delta}, stream));
  TERN_RETURN_IF_ERROR(ops::rms_norm(norm, stream));
  return ops::linear({v.x, &v.next[turn], {}, v.qkv}, stream);
}

Expected<KernelCase> make(KernelBencher& bencher, const Shape& s, int64_t rows) {
  const auto weights = static_cast<double>(s.hidden * (s.mixed + 3 * s.inner + s.qkv));
  KernelCase c;
  c.bytes = 2 * weights, c.flops = 2 * weights * static_cast<double>(rows);
  c.turns = bencher.turns(c.bytes);
  TERN_ASSIGN_OR_RETURN(const Values v, take(bencher, s, rows, c.turns));
  c.run = [v, rows, stream = bencher.stream()](int turn) {
    ops::begin_deferral(stream, rows);
    const Status done = layer(v, static_cast<size_t>(turn), stream);
    const Status closed = ops::end_deferral(stream);
    return done.ok() ? closed : done;
  };
  return c;
}

}  // namespace

std::vector<KernelBench> bench_layers() {
  std::vector<KernelBench> items;
  for (const Shape& s : kShapes) {
    for (const int64_t rows : kRows) {
      items.push_back({"layers", fmt::format("{} without attention, rows {}", s.what, rows),
                       [s, rows](KernelBencher& bencher) { return make(bencher, s, rows); }});
    }
  }
  return items;
}

}  // namespace tern::bench
