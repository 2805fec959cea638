#include "cuda/tests/products.h"

#include <algorithm>
#include <string>

namespace tern::cuda_test {

Weights pack(Context& c, const char* format, DType source_type, int count, int64_t n, int64_t k, uint32_t seed) {
  Weights w;
  static auto host = device::make_cpu_device({});
  for (int i = 0; i < count; ++i) {
    Mirror source(c, source_type, {n, k});
    source.random(seed + static_cast<uint32_t>(i), 0.05f);
    auto a = ops::pack_weight(**host, *ops::find_weight_format(device::DeviceKind::kCpu, format), source.cpu());
    auto b = ops::pack_weight(*c.device, *ops::find_weight_format(device::DeviceKind::kCuda, format), source.cpu());
    if (!a.ok() || !b.ok()) {
      c.report(false, "pack", a.ok() ? b.error().message : a.error().message);
      return {};
    }
    w.cpu.push_back(std::move(a).value());
    w.gpu.push_back(std::move(b).value());
  }
  return w;
}

void plain(Context& c, const char* format, DType x_type, DType out_type, int64_t rows, int64_t n, int64_t k, bool bias,
           int64_t pad, const char* kernel) {
  if (!c.own_turn()) return;
  Weights w = pack(c, format, DType::kBF16, 1, n, k, 11);
  if (w.gpu.empty()) return;
  Mirror x(c, x_type, {rows, k}, pad), b(c, DType::kF32, {n}), out(c, out_type, {rows, n}, 16);
  x.random(12), b.random(13);
  const std::string name = title(std::string("linear ") + format, x_type, {rows, n, k});
  const ops::LinearParams cpu{x.cpu(), &w.cpu[0], bias ? b.cpu() : TensorView{}, out.cpu()},
      gpu{x.gpu(), &w.gpu[0], bias ? b.gpu() : TensorView{}, out.gpu()};
  if (!c.both(name, ops::linear(cpu, c.cpu), ops::linear(gpu, c.gpu))) return;
  if (kernel != nullptr && rows > 0) c.expect_kernel(name, kernel);
  compare(c, name, out, out.host(), out_type == DType::kBF16 || x_type == DType::kBF16 ? 1.0 / 100 : 1e-4);
}

void same_bits(Context& c, int64_t width, int64_t k, bool gate, DType type) {
  if (!c.own_turn()) return;
  constexpr int64_t kRows = 700;
  Weights w = pack(c, "bf16", DType::kBF16, 1, width, k, 21);
  if (w.gpu.empty()) return;
  const int64_t cols = gate ? width / 2 : width;
  Mirror x(c, DType::kBF16, {kRows, k}), all(c, type, {kRows, cols}), one(c, type, {kRows, cols}),
      between(c, DType::kF32, {gate ? kRows : 1, width});
  x.random(22);
  const auto run = [&](TensorView from, TensorView to) {
    TensorView product = gate ? between.gpu() : to;
    product.dim[0] = from.dim[0];
    const ops::LinearParams p{from, &w.gpu[0], {}, product};
    if (const Status s = gate ? ops::gated_linear(p, to, c.gpu) : ops::linear(p, c.gpu); !s.ok()) {
      c.report(false, "same bits", s.error().message);
    }
  };
  run(x.gpu(), all.gpu());
  const std::vector<char> want = all.copy_to_host();
  const std::string name = title("the same bits in every batch", DType::kBF16, {width, k});
  constexpr int64_t kCounts[] = {1, 40, 80, 12, 27, 64, 129, 256, 8};
  size_t turn = 0;
  const auto some = [&](int64_t t) {
    const int64_t n = std::min(kCounts[turn++ % std::size(kCounts)], kRows - t);
    TensorView from = x.gpu(), to = one.gpu();
    from.data = from.row_bytes(t), to.data = to.row_bytes(t);
    from.dim[0] = to.dim[0] = n;
    run(from, to);
    return n;
  };
  // Many in a row, with nobody waiting in between; every turn begins with other counts.
  for (int i = 0; i < (c.smallest ? 1 : 40); ++i) {
    for (int64_t t = 0; t < kRows;) t += some(t);
    if (i % 8 == 7) c.report(one.copy_to_host() == want, name, "turn " + std::to_string(i));
  }
  turn = 0;
  for (int64_t t = 0; t < kRows;) {
    const int64_t n = some(t);
    const size_t size = static_cast<size_t>(n * cols) * dtype_bytes(type),
                 at = static_cast<size_t>(t * cols) * dtype_bytes(type);
    const std::vector<char> got = one.copy_to_host();
    c.report(
        std::equal(got.begin() + static_cast<std::ptrdiff_t>(at), got.begin() + static_cast<std::ptrdiff_t>(at + size),
                   want.begin() + static_cast<std::ptrdiff_t>(at)),
        name, (gate ? "with a gate, " : "") + std::to_string(n) + " rows");
    t += n;
  }
}

void gated(Context& c, int64_t rows, int64_t half, int64_t k, bool bias, const char* kernel, DType between_type) {
  if (!c.own_turn()) return;
  Weights w = pack(c, "bf16", DType::kBF16, 1, 2 * half, k, 61);
  if (w.gpu.empty()) return;
  Mirror x(c, DType::kBF16, {rows, k}), b(c, DType::kF32, {2 * half}), between(c, between_type, {rows, 2 * half}),
      out(c, DType::kBF16, {rows, half}, 8);
  x.random(62), b.random(63);
  const std::string name = title("gated_linear", DType::kBF16, {rows, half, k});
  const ops::LinearParams cpu{x.cpu(), &w.cpu[0], bias ? b.cpu() : TensorView{}, between.cpu()},
      gpu{x.gpu(), &w.gpu[0], bias ? b.gpu() : TensorView{}, between.gpu()};
  if (!c.both(name, ops::gated_linear(cpu, out.cpu(), c.cpu), ops::gated_linear(gpu, out.gpu(), c.gpu))) return;
  if (kernel != nullptr) c.expect_kernel(name, kernel);
  compare(c, name, out, out.host(), 1.0 / 100);
}

}  // namespace tern::cuda_test
