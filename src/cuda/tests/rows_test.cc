// Norms, activations and rows by index.
#include "cuda/tests/harness.h"
#include "ops/activation.h"
#include "ops/embedding.h"
#include "ops/norm.h"
#include "ops/vision.h"

namespace tern::cuda_test {
namespace {

constexpr DType kTypes[] = {DType::kBF16, DType::kF32};

void rms(Context& c, DType type, DType out_type, int64_t rows, int64_t n, bool residual, int64_t pad) {
  Mirror x(c, type, {rows, n}, pad), r(c, type, {rows, n}), w(c, DType::kF32, {n}), out(c, out_type, {rows, n}, pad);
  x.random(1), r.random(2), w.random(3);
  const std::string name = title("rms_norm", type, {rows, n}) + (residual ? " residual" : "");
  const auto params = [&](bool gpu) {
    const auto v = [&](const Mirror& m) { return gpu ? m.gpu() : m.cpu(); };
    return ops::RmsNormParams{v(x), residual ? v(r) : TensorView{}, v(w), v(out), 1e-6f};
  };
  if (!c.both(name, ops::rms_norm(params(false), c.cpu), ops::rms_norm(params(true), c.gpu))) return;
  const char* wide = n % 8 == 0 && n <= 16384 ? "rms_norm_vector" : "rms_norm_block";
  if (rows > 0) c.expect_kernel(name, n <= 512 ? "rms_norm_warp" : wide);
  compare(c, name, out, out.host(), tolerance_of(out_type));
  if (residual) compare(c, name + " sum", r, r.host(), 0);
}

void heads(Context& c, DType type) {
  Mirror x(c, type, {5, 7, 128}), w(c, type, {128});
  x.random(4), w.random(5);
  const std::string name = title("rms_norm heads", type, {5, 7, 128});
  const ops::RmsNormParams cpu{x.cpu(), {}, w.cpu(), x.cpu(), 1e-5f}, gpu{x.gpu(), {}, w.gpu(), x.gpu(), 1e-5f};
  if (c.both(name, ops::rms_norm(cpu, c.cpu), ops::rms_norm(gpu, c.gpu))) {
    compare(c, name, x, x.host(), tolerance_of(type));
  }
}

void layer(Context& c, DType type, int64_t rows, int64_t n) {
  Mirror x(c, type, {rows, n}, 8), r(c, type, {rows, n}), w(c, type, {n}), b(c, type, {n}), out(c, type, {rows, n});
  x.random(1, 3.0f), r.random(2), w.random(3), b.random(4);
  const std::string name = title("layer_norm", type, {rows, n});
  const ops::LayerNormParams cpu{x.cpu(), r.cpu(), w.cpu(), b.cpu(), out.cpu(), 1e-6f},
      gpu{x.gpu(), r.gpu(), w.gpu(), b.gpu(), out.gpu(), 1e-6f};
  if (!c.both(name, ops::layer_norm(cpu, c.cpu), ops::layer_norm(gpu, c.gpu))) return;
  c.expect_kernel(name, n % 4 == 0 && n <= 2048 ? "layer_norm_kept" : "layer_norm_any");
  compare(c, name, out, out.host(), tolerance_of(type));
  compare(c, name + " sum", r, r.host(), 0);
}

// As towers have it: what is added in bfloat16, the sum in float32.
void layer_of_both(Context& c, int64_t rows, int64_t n, bool first) {
  Mirror x(c, DType::kBF16, {rows, n}, 4), r(c, DType::kF32, {rows, n}, 4), w(c, DType::kF32, {n}),
      b(c, DType::kF32, {n}), out(c, DType::kBF16, {rows, n});
  x.random(1, 3.0f), r.random(2), w.random(3), b.random(4);
  const std::string name = title("layer_norm of both types", DType::kBF16, {rows, n});
  const ops::LayerNormParams cpu{
      first ? r.cpu() : x.cpu(), first ? TensorView{} : r.cpu(), w.cpu(), b.cpu(), out.cpu(), 1e-6f},
      gpu{first ? r.gpu() : x.gpu(), first ? TensorView{} : r.gpu(), w.gpu(), b.gpu(), out.gpu(), 1e-6f};
  if (!c.both(name, ops::layer_norm(cpu, c.cpu), ops::layer_norm(gpu, c.gpu))) return;
  c.expect_kernel(name, n % 4 == 0 && n <= 2048 ? "layer_norm_kept" : "layer_norm_any");
  compare(c, name, out, out.host(), 1.0 / 100);
  compare(c, name + " sum", r, r.host(), 0);
}

void gated(Context& c, DType type, int64_t rows, int64_t n, bool ranged) {
  Mirror x(c, type, {rows, 2 * n}), out(c, type, {rows, n}), range(c, DType::kI32, {3});
  x.random(6, 2.0f);
  const auto last = static_cast<int32_t>(rows > 1 ? rows - 1 : rows);
  range.fill<int32_t>({rows > 2 ? 1 : 0, rows > 2 ? 1 : 0, last});
  const std::string name = title(ranged ? "silu_mul range" : "silu_mul", type, {rows, n});
  const ops::SiluMulParams cpu{x.cpu(), out.cpu(), ranged ? range.cpu() : TensorView{}},
      gpu{x.gpu(), out.gpu(), ranged ? range.gpu() : TensorView{}};
  if (!c.both(name, ops::silu_mul(cpu, c.cpu), ops::silu_mul(gpu, c.gpu))) return;
  if (rows > 0) c.expect_kernel(name, n % 8 == 0 ? "silu_mul_vector" : "silu_mul_scalar");
  compare(c, name, out, out.host(), tolerance_of(type));
}

void activations(Context& c, DType type) {
  for (const auto kind : {ops::Activation::kGeluErf, ops::Activation::kGeluTanh, ops::Activation::kQuickGelu,
                          ops::Activation::kSilu, ops::Activation::kRelu, ops::Activation::kNone}) {
    for (const int64_t n : {333, 4304}) {
      Mirror x(c, type, {9, n}), out(c, type, {9, n}, n == 333 ? 3 : 8);
      x.random(7, 3.0f);
      const std::string name = title("activate " + std::to_string(static_cast<int>(kind)), type, {9, n});
      const ops::ActivateParams cpu{x.cpu(), out.cpu(), kind}, gpu{x.gpu(), out.gpu(), kind};
      if (!c.both(name, ops::activate(cpu, c.cpu), ops::activate(gpu, c.gpu))) continue;
      c.expect_kernel(name, n == 333 ? "activate_scalar" : "activate_vector");
      compare(c, name, out, out.host(), tolerance_of(type));
    }
  }
}

void by_index(Context& c, DType from, DType to, int64_t n) {
  Mirror table(c, from, {50, n}), ids(c, DType::kI32, {6}), out(c, to, {6, n}), back(c, to, {50, n});
  table.random(8), back.random(9);
  ids.fill<int32_t>({3, 49, 0, 7, 8, 9});
  const std::string name = title("embedding", from, {50, n});
  if (c.both(name, ops::embedding({table.cpu(), ids.cpu(), out.cpu()}, c.cpu),
             ops::embedding({table.gpu(), ids.gpu(), out.gpu()}, c.gpu))) {
    compare(c, name, out, out.host(), 0);
  }
  if (c.both("gather " + name, ops::gather_rows({table.cpu(), ids.cpu(), out.cpu()}, c.cpu),
             ops::gather_rows({table.gpu(), ids.gpu(), out.gpu()}, c.gpu))) {
    compare(c, "gather " + name, out, out.host(), 0);
  }
  ids.fill<int32_t>({3, -1, 0, -1, 8, 9});
  if (c.both("take " + name, ops::take_rows({table.cpu(), ids.cpu(), out.cpu()}, c.cpu),
             ops::take_rows({table.gpu(), ids.gpu(), out.gpu()}, c.gpu))) {
    compare(c, "take " + name, out, out.host(), 0);
  }
  const TensorView few_cpu = table.cpu().first(6), few_gpu = table.gpu().first(6);
  if (c.both("scatter " + name, ops::scatter_rows({few_cpu, ids.cpu(), back.cpu()}, c.cpu),
             ops::scatter_rows({few_gpu, ids.gpu(), back.gpu()}, c.gpu))) {
    compare(c, "scatter " + name, back, back.host(), 0);
  }
}

void resolve(Context& c) {
  Mirror ids(c, DType::kI32, {700}), source(c, DType::kI32, {700}), previous(c, DType::kI32, {40});
  std::vector<int32_t> a, b, p;
  for (int i = 0; i < 700; ++i) a.push_back(i), b.push_back(i % 3 == 0 ? i % 40 : -1);
  for (int i = 0; i < 40; ++i) p.push_back(1000 + i);
  ids.fill(a), source.fill(b), previous.fill(p);
  if (c.both("resolve_ids", ops::resolve_ids({ids.cpu(), source.cpu(), previous.cpu()}, c.cpu),
             ops::resolve_ids({ids.gpu(), source.gpu(), previous.gpu()}, c.gpu))) {
    compare(c, "resolve_ids", ids, ids.host(), 0);
  }
  // With changes of a table: more than there are ids, some of them none.
  Mirror few(c, DType::kI32, {3}), from(c, DType::kI32, {3}), changes(c, DType::kI32, {300, 2}),
      table(c, DType::kI32, {30, 17});
  few.fill<int32_t>({5, 6, 7}), from.fill<int32_t>({-1, 39, -1});
  std::vector<int32_t> list, places(30 * 17, -7);
  for (int i = 0; i < 300; ++i) list.push_back(i % 4 == 1 ? -1 : i * 7 % (30 * 17)), list.push_back(i);
  changes.fill(list), table.fill(places);
  if (c.both("resolve_ids and changes",
             ops::resolve_ids({few.cpu(), from.cpu(), previous.cpu(), changes.cpu(), table.cpu()}, c.cpu),
             ops::resolve_ids({few.gpu(), from.gpu(), previous.gpu(), changes.gpu(), table.gpu()}, c.gpu))) {
    compare(c, "resolve_ids and changes", few, few.host(), 0);
    compare(c, "changes of a table", table, table.host(), 0);
  }
}

void interpolate(Context& c, DType type, int64_t n, const char* kernel) {
  Mirror table(c, type, {30, n}), rows(c, DType::kI32, {11, 4}), weights(c, DType::kF32, {11, 4}),
      out(c, DType::kF32, {11, n});
  table.random(1), weights.random(2), out.random(3);
  std::vector<int32_t> at;
  for (int i = 0; i < 44; ++i) at.push_back(i * 7 % 30);
  rows.fill(at);
  const std::string name = title("interpolate_rows", type, {11, n});
  if (c.both(name, ops::interpolate_rows({table.cpu(), rows.cpu(), weights.cpu(), out.cpu()}, c.cpu),
             ops::interpolate_rows({table.gpu(), rows.gpu(), weights.gpu(), out.gpu()}, c.gpu))) {
    c.expect_kernel(name, kernel);
    compare(c, name, out, out.host(), 2e-6);
  }
}

}  // namespace

void test_norms(Context& c) {
  for (const DType t : kTypes) {
    for (const int64_t rows : c.pick<int64_t>({0, 1, 3, 700}, 3)) {
      for (const int64_t n : {64, 72, 512, 520, 2560}) rms(c, t, t, rows, n, n % 3 == 0 || rows == 3, n == 72 ? 8 : 0);
    }
    rms(c, t, t, 2, 16384, true, 0);
    heads(c, t);
    for (const int64_t n : {72, 1152, 4304}) layer(c, t, 5, n), layer(c, t, 1, n);
  }
  const DType b = DType::kBF16, f = DType::kF32;
  for (const int64_t n : {72, 509, 1024, 1025, 4096, 5120}) {
    rms(c, f, b, c.smallest ? 3 : 300, n, true, n % 8 == 0 ? 8 : 0);
  }
  for (const int64_t n : {64, 75, 1152, 1284, 2048, 5120}) {
    layer_of_both(c, 1, n, false), layer_of_both(c, 9, n, true), layer_of_both(c, 9, n, false);
  }
}

void test_rows(Context& c) {
  for (const DType t : kTypes) {
    for (const int64_t rows : c.pick<int64_t>({0, 1, 5, 300}, 3)) {
      gated(c, t, rows, 768, false), gated(c, t, rows, 768, true), gated(c, t, rows, 13, false);
    }
    activations(c, t);
    interpolate(c, t, 72, "interpolate_fours"), interpolate(c, t, 1288, "interpolate_fours");
    interpolate(c, t, 75, "interpolate_rows");
    for (const DType to : kTypes) by_index(c, t, to, 64), by_index(c, t, to, 1025);
  }
  resolve(c);
}

}  // namespace tern::cuda_test
