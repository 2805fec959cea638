// Products: every path, with and without cuBLASLt.
#include <algorithm>
#include <cstring>

#include "cuda/tests/harness.h"
#include "ops/linear.h"
#include "ops/vision.h"

namespace tern::cuda_test {
namespace {

struct Weights {
  std::vector<ops::PackedWeight> cpu, gpu;
};

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

// Rows alone give the same bits as rows among others: all tiles sum in one order. With a gate behind the product, too.
void same_bits(Context& c, int64_t width, int64_t k, bool gate = false, DType type = DType::kF32) {
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
  const std::vector<char> want = all.pull();
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
    if (i % 8 == 7) c.report(one.pull() == want, name, "turn " + std::to_string(i));
  }
  turn = 0;
  for (int64_t t = 0; t < kRows;) {
    const int64_t n = some(t);
    const size_t size = static_cast<size_t>(n * cols) * dtype_bytes(type),
                 at = static_cast<size_t>(t * cols) * dtype_bytes(type);
    const std::vector<char> got = one.pull();
    c.report(
        std::equal(got.begin() + static_cast<std::ptrdiff_t>(at), got.begin() + static_cast<std::ptrdiff_t>(at + size),
                   want.begin() + static_cast<std::ptrdiff_t>(at)),
        name, (gate ? "with a gate, " : "") + std::to_string(n) + " rows");
    t += n;
  }
}

void grouped(Context& c, const char* format, DType type, int experts, int64_t rows, int64_t n, int64_t k,
             const char* kernel = nullptr, bool exact = false) {
  Weights w = pack(c, format, DType::kBF16, experts, n, k, 31);
  if (w.gpu.empty()) return;
  Mirror x(c, type, {rows, k}), out(c, exact ? DType::kF32 : type, {rows, n}), offsets(c, DType::kI32, {experts + 1});
  x.random(32);
  // Uneven, with empty experts; the rows of the last ones belong to nobody.
  std::vector<int32_t> at{0};
  for (int e = 0; e < experts; ++e) {
    const int64_t share = e % 3 == 1 ? 0 : e == 0 ? rows / 2 : rows / (2 * experts);
    at.push_back(static_cast<int32_t>(std::min<int64_t>(rows, at.back() + share)));
  }
  offsets.fill(at);
  const std::string name = title(std::string("grouped_linear ") + format, type, {experts, rows, n, k});
  if (c.both(name, ops::grouped_linear({x.cpu(), offsets.cpu(), w.cpu, out.cpu()}, c.cpu),
             ops::grouped_linear({x.gpu(), offsets.gpu(), w.gpu, out.gpu()}, c.gpu))) {
    if (kernel != nullptr) c.expect_kernel(name, kernel);
    compare(c, name, out, out.host(), tolerance_of(type) * 5);
  }
}

// A product and its gate: in one kernel or in two, the same bits where the product is the same.
void gated(Context& c, int64_t rows, int64_t half, int64_t k, bool bias, const char* kernel,
           DType between_type = DType::kF32) {
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

// A bias that both types hold.
void fill_both(Mirror& exact, Mirror& rounded) {
  std::vector<float> bias;
  std::vector<uint16_t> halves;
  for (size_t i = 0; i < exact.bytes() / sizeof(float); ++i) {
    bias.push_back(static_cast<float>(i % 9) - 4);
    uint32_t bits;
    std::memcpy(&bits, &bias.back(), sizeof bits);
    halves.push_back(static_cast<uint16_t>(bits >> 16));
  }
  exact.fill(bias), rounded.fill(halves);
}

// A product and its activation; the bias is there in both types.
void active(Context& c, int64_t rows, int64_t n, int64_t k, ops::Activation kind, const char* kernel) {
  Weights w = pack(c, "bf16", DType::kBF16, 1, n, k, 81);
  if (w.gpu.empty()) return;
  Mirror x(c, DType::kBF16, {rows, k}), b(c, DType::kF32, {n}), s(c, DType::kBF16, {n}),
      exact(c, DType::kF32, {rows, n}), between(c, DType::kBF16, {rows, n}), out(c, DType::kBF16, {rows, n}, 8);
  x.random(82);
  fill_both(b, s);
  const std::string name = title("active_linear", DType::kBF16, {rows, n, k});
  const ops::LinearParams cpu{x.cpu(), &w.cpu[0], b.cpu(), exact.cpu(), s.cpu()},
      gpu{x.gpu(), &w.gpu[0], b.gpu(), between.gpu(), s.gpu()};
  if (!c.both(name, ops::active_linear(cpu, kind, out.cpu(), c.cpu), ops::active_linear(gpu, kind, out.gpu(), c.gpu))) {
    return;
  }
  if (kernel != nullptr) c.expect_kernel(name, kernel);
  compare(c, name, out, out.host(), 1.5 / 100);
}

// A product in bfloat16 with the bias in both types.
void short_bias(Context& c, int64_t rows, int64_t n, int64_t k, const char* kernel) {
  Weights w = pack(c, "bf16", DType::kBF16, 1, n, k, 91);
  if (w.gpu.empty()) return;
  Mirror x(c, DType::kBF16, {rows, k}), b(c, DType::kF32, {n}), s(c, DType::kBF16, {n}),
      out(c, DType::kBF16, {rows, n});
  x.random(92);
  fill_both(b, s);
  const std::string name = title("linear with a short bias", DType::kBF16, {rows, n, k});
  const ops::LinearParams cpu{x.cpu(), &w.cpu[0], b.cpu(), out.cpu(), s.cpu()},
      gpu{x.gpu(), &w.gpu[0], b.gpu(), out.gpu(), s.gpu()};
  if (!c.both(name, ops::linear(cpu, c.cpu), ops::linear(gpu, c.gpu))) return;
  if (kernel != nullptr) c.expect_kernel(name, kernel);
  compare(c, name, out, out.host(), 1.0 / 100);
}

void grouped_gated(Context& c, int experts, int64_t rows, int64_t half, int64_t k, const char* kernel) {
  Weights w = pack(c, "bf16", DType::kBF16, experts, 2 * half, k, 71);
  if (w.gpu.empty()) return;
  Mirror x(c, DType::kBF16, {rows, k}), between(c, DType::kF32, {rows, 2 * half}), out(c, DType::kBF16, {rows, half}),
      offsets(c, DType::kI32, {experts + 1});
  x.random(72);
  std::vector<int32_t> at{0};
  for (int e = 0; e < experts; ++e) {
    at.push_back(static_cast<int32_t>(e + 1 == experts ? rows : std::min<int64_t>(rows, at.back() + e % 4 * rows / 8)));
  }
  offsets.fill(at);
  const std::string name = title("grouped_gated_linear", DType::kBF16, {experts, rows, half, k});
  const ops::GroupedLinearParams cpu{x.cpu(), offsets.cpu(), w.cpu, between.cpu()},
      gpu{x.gpu(), offsets.gpu(), w.gpu, between.gpu()};
  if (!c.both(name, ops::grouped_gated_linear(cpu, out.cpu(), c.cpu),
              ops::grouped_gated_linear(gpu, out.gpu(), c.gpu))) {
    return;
  }
  if (kernel != nullptr) c.expect_kernel(name, kernel);
  compare(c, name, out, out.host(), 1.0 / 100);
}

void gates(Context& c) {
  const bool hopper = c.hopper(), fused = hopper && c.fixed();
  gated(c, 1, 200, 512, true, fused ? "gemm_push_8" : hopper ? "gemm_held" : "silu_mul_vector");
  gated(c, 8, 1029, 1032, false, fused ? "gemm_hopper_8" : hopper ? "gemm_held" : nullptr);
  gated(c, 17, 330, 1096, false, hopper ? "gemm_hopper_32" : nullptr);
  gated(c, 15, 328, 1088, true, hopper ? "gemm_push_16" : nullptr);
  gated(c, 30, 328, 1088, true, hopper ? "gemm_push_wide" : nullptr);
  gated(c, 60, 512, 2048, true, hopper ? "gemm_hopper_64" : "silu_mul_vector");
  gated(c, 100, 200, 512, false, fused ? "gemm_hopper_128" : nullptr);
  gated(c, 300, 256, 264, false, fused ? "gemm_hopper_256" : nullptr);
  gated(c, 300, 256, 264, true, "silu_mul_vector", DType::kBF16);
  if (hopper) {
    // 64 of 66 places on an H200, edges in every direction.
    const char* large = fused ? "gemm_hopper_256" : "gemm_gate";
    if (!c.smallest) gated(c, 2040, 1016, 1096, false, large);
    gated(c, 4090, 504, 72, false, fused ? "silu_mul_vector" : large, DType::kBF16);
  }
  // Gate and up that fill the GPU once.
  for (const int64_t rows : {100, 250, 600}) {
    if (hopper && !c.smallest) gated(c, rows, 12288, 704, false, rows == 100 ? "gemm_fixed_128" : "gemm_fixed_256");
  }
  if (hopper && !c.smallest) gated(c, 7, 3072, 1024, true, fused ? "gemm_push_8" : "gemm_held");
  for (const int64_t k : {72, 136}) {  // one run of k, and two
    if (hopper) gated(c, 7, 3072, k, true, fused ? nullptr : "gemm_held");
  }
  const char* few = !hopper ? nullptr : c.fixed() ? "gemm_hopper_grouped_32" : "gemm_hopper_grouped_few";
  grouped_gated(c, 10, 30, 100, 256, hopper ? "gemm_hopper_grouped_32" : nullptr);
  grouped_gated(c, 10, 4, 100, 1088, hopper ? "gemm_hopper_grouped_32" : nullptr);
  for (const int64_t k : {256, 512, 768, 1024, 1536, 2048, 2560, 4096}) grouped_gated(c, 10, 8, 104, k, few);
  grouped_gated(c, 130, 8, 64, 2048, few);
  grouped_gated(c, c.smallest ? 3 : 10, c.smallest ? 500 : 2000, 328, 320,
                hopper ? "gemm_hopper_grouped_pairs" : nullptr);
  if (!c.smallest) {
    grouped_gated(c, 130, 9000, 136, 128, hopper ? "gemm_hopper_grouped_wide" : nullptr);
    grouped_gated(c, 60, 5000, 264, 128, hopper ? "gemm_hopper_grouped_pairs" : nullptr);
  }
  grouped_gated(c, 10, 500, 136, 192, hopper ? "gemm_hopper_grouped_wide" : nullptr);
  grouped_gated(c, 10, 500, 100, 192, hopper ? "gemm_hopper_grouped_128" : nullptr);
}

void heads(Context& c, DType type, int count, int64_t rows, int64_t n, int64_t k) {
  Weights w = pack(c, "bf16", DType::kBF16, count, n, k, 41);
  if (w.gpu.empty()) return;
  Mirror x(c, type, {rows, count, k}), out(c, type, {rows, count, n});
  x.random(42);
  const std::string name = title("head_linear", type, {count, rows, n, k});
  if (c.both(name, ops::head_linear({x.cpu(), w.cpu, out.cpu()}, c.cpu),
             ops::head_linear({x.gpu(), w.gpu, out.gpu()}, c.gpu))) {
    compare(c, name, out, out.host(), tolerance_of(type) * 5);
  }
}

void rows_of_weight(Context& c) {
  Weights w = pack(c, "bf16", DType::kF32, 1, 100, 68, 51);
  if (w.gpu.empty()) return;
  Mirror ids(c, DType::kI32, {4}), out(c, DType::kBF16, {4, 68});
  ids.fill<int32_t>({99, 0, 5, 5});
  const auto& cpu = *w.cpu[0].format;
  const auto& gpu = *w.gpu[0].format;
  if (c.both("rows of a packed weight", cpu.gather_rows(w.cpu[0], ids.cpu(), out.cpu(), c.cpu),
             gpu.gather_rows(w.gpu[0], ids.gpu(), out.gpu(), c.gpu))) {
    compare(c, "rows of a packed weight", out, out.host(), 0);
  }
}

// Large weights in deterministic mode: tiles of 128 and of 192 rows, of parts, of their sums and whole.
void fixed_large(Context& c) {
  constexpr DType kX = DType::kBF16, kOut = DType::kF32;
  for (const int64_t rows : {7, 20, 61, 100, 250, 600}) {
    const int tile = rows <= 8 ? 8 : rows <= 32 ? 32 : rows <= 64 ? 64 : rows <= 128 ? 128 : 256;
    const std::string fixed = "gemm_fixed_" + std::to_string(tile), other = "gemm_hopper_" + std::to_string(tile);
    const std::string parts = rows <= 256 ? fixed : "gemm_fixed_sums";
    plain(c, "bf16", kX, kOut, rows, 1960, 8704, rows % 2 == 0, 8, parts.c_str());
    plain(c, "bf16", kX, kOut, rows, 6144, 2824, rows % 2 == 0, 8, (rows <= 64 ? other : parts).c_str());
    plain(c, "bf16", kX, kOut, rows, 25608, 712, rows % 2 == 0, 8, (rows <= 32 ? other : fixed).c_str());
    gated(c, rows, 12288, 704, false, fixed.c_str());
  }
}

}  // namespace

void test_linear(Context& c) {
  const bool own = c.label == "no-cublaslt", fixed = c.fixed(), blas = !own && !fixed, hopper = c.hopper();
  const auto own_or = [&](const char* always, const char* usual) { return !hopper ? nullptr : fixed ? always : usual; };
  const auto few = [&](const char* kernel) { return hopper ? kernel : fixed ? "gemm_mma_16" : "gemv"; };
  const DType b = DType::kBF16, f = DType::kF32;
  for (const DType out : {b, f}) {
    plain(c, "bf16", b, out, 0, 256, 512, false, 0, nullptr);
    plain(c, "bf16", b, out, 1, 1000, 1024, true, 0, few(fixed ? "gemm_push_8" : "gemm_held"));
    plain(c, "bf16", b, out, 7, 1000, 3072, false, 8, own_or("gemm_push_8", "gemm_held"));
    plain(c, "bf16", b, out, 4, 264, 4096, false, 8, few(fixed ? "gemm_push_8" : "gemm_held_kept"));
    plain(c, "bf16", b, out, 17, 520, 1096, false, 0, hopper ? "gemm_push_32" : blas ? "cublaslt" : "gemm_mma_16");
    plain(c, "bf16", b, out, 50, 72, 136, true, 0, hopper ? "gemm_hopper_64" : nullptr);
    plain(c, "bf16", b, out, 16, 72, 136, true, 0, hopper ? "gemm_hopper_16" : nullptr);
    plain(c, "bf16", b, out, 16, 256, 2048, true, 0, hopper ? "gemm_push_16" : nullptr);
    // Parts of unequal length; as long as the ring of an H200 and longer.
    plain(c, "bf16", b, out, 40, 1000, 520, true, 8, hopper ? "gemm_push_64" : nullptr);
    if (hopper && !c.smallest) plain(c, "bf16", b, out, 61, 1000, 3072, false, 0, "gemm_push_64");
    if (hopper) plain(c, "bf16", b, out, 61, 264, 4096, false, 8, "gemm_push_64");
    plain(c, "bf16", b, out, 100, 512, 2048, false, 0, blas ? "cublaslt" : hopper ? "gemm_hopper_128" : nullptr);
    if (hopper && (!c.smallest || out == b)) {
      plain(c, "bf16", b, out, 6, 4300, 2056, true, 8, own_or("gemm_hopper_8", "gemm_held_kept"));
    }
    if (hopper && !c.smallest) {  // more blocks than multiprocessors; weights of three turns
      plain(c, "bf16", b, out, 8, 2200, 3208, false, 8, own_or(nullptr, "gemm_held"));
      plain(c, "bf16", b, out, 8, 520, 6152, true, 0, own_or(nullptr, "gemm_held_kept"));
    }
    if (hopper && (!c.smallest || out == b)) {
      // Weights just large enough to be walked through, or too wide for it.
      const char* parts = fixed && out == f ? "gemm_fixed_8" : "gemm_hopper_8";
      plain(c, "bf16", b, out, 3, 4104, 4104, false, 8, parts);
      plain(c, "bf16", b, out, 5, 1400, 12296, true, 8, fixed ? parts : "gemm_walk_8");
      plain(c, "bf16", b, out, 13, 2900, 6000, false, 8, fixed ? "gemm_hopper_16" : "gemm_walk_16");
      plain(c, "bf16", b, out, 30, 2900, 6000, true, 8, fixed ? "gemm_hopper_32" : "gemm_walk_32");
      plain(c, "bf16", b, out, 61, 2900, 6000, true, 8, fixed ? "gemm_hopper_64" : "gemm_walk_64");
    }
    if (hopper && !fixed && out == f && !c.smallest)
      plain(c, "bf16", b, out, 100, 1400, 12296, true, 8, "gemm_fixed_128");
    if (c.smallest) plain(c, "bf16", b, out, 130, 520, 264, true, 0, nullptr);  // the tile of 128
    if (!c.smallest) {
      // By the size of the GPU.
      plain(c, "bf16", b, out, 333, 1000, 584, false, 0, blas ? "cublaslt" : hopper ? "gemm_hopper_256" : nullptr);
      plain(c, "bf16", b, out, 1030, 2050, 264, true, 0, nullptr);
      plain(c, "bf16", b, out, 300, 2048, 264, true, 0, blas && out == f ? "cublaslt" : nullptr);
    }
    if (fixed && hopper && !c.smallest && out == f) fixed_large(c);
    plain(c, "bf16", b, out, 9, 100, 588, false, 4, nullptr);  // patches: k is no multiple of 8
    // Many of them.
    plain(c, "bf16", b, out, 80, 104, 588, out == f, 0, blas ? "cublaslt" : "gemm_simple");
    plain(c, "bf16", b, out, 9, 100, 75, true, 0, "gemm_simple");  // rows that are not aligned
  }
  plain(c, "bf16", f, f, 1, 300, 512, false, 0, fixed ? "gemm_simple" : "gemv");
  plain(c, "bf16", f, f, 70, 300, 515, true, 0, "gemm_simple");
  plain(c, "f32", f, f, 70, 128, 1000, false, 0, "gemm_simple");
  plain(c, "f32", b, f, 33, 64, 75, false, 0, "gemm_simple");
  if (fixed && !c.smallest) same_bits(c, 1000, 3072);  // of up to 64 rows the parts are sent
  for (const int64_t rows : {1, 20, 33, 200}) {
    for (const int64_t k : {264, 2200}) {
      plain(c, "f32", b, f, rows, 100, k, rows == 33, 0, hopper && rows <= 128 ? "gemm_mixed_team" : "gemm_mixed");
    }
  }
  plain(c, "f32", b, f, 2100, 24, 264, true, 0, "gemm_mixed_many");
  if (fixed) same_bits(c, 640, 1096);
  if (fixed && !c.smallest) {
    same_bits(c, 3000, 3080), same_bits(c, 2576, 1536, true);
    same_bits(c, 1960, 8704), same_bits(c, 4096, 4096);  // parts of up to 256 rows are blocks
    same_bits(c, 6144, 2824), same_bits(c, 25608, 712);
    same_bits(c, 24576, 704, true, DType::kBF16);
  }
  // Parts of tiles of 192 rows, outside deterministic mode, too.
  if (hopper && !c.smallest) plain(c, "bf16", b, f, 100, 5120, 10248, false, 8, "gemm_fixed_128");
  const char* thin = !hopper ? nullptr : fixed ? "gemm_hopper_grouped_32" : "gemm_hopper_grouped_few";
  for (const int64_t rows : c.pick<int64_t>({1, 40, 700}, 2)) {
    grouped(c, "bf16", b, 10, rows, 136, 264);
    grouped(c, "bf16", b, 10, rows, 200, 256,
            hopper ? rows > 80 ? "gemm_hopper_grouped_128" : "gemm_hopper_grouped_32" : nullptr);
    grouped(c, "bf16", b, 10, rows, 200, 256,
            hopper ? rows > 80 ? "gemm_hopper_grouped_128" : "gemm_hopper_grouped_32" : nullptr, true);
  }
  for (const int64_t rows : {1, 5, 8}) {
    for (const int64_t k : {256, 768, 2048}) grouped(c, "bf16", b, 10, rows, 208, k, thin, rows == 5);
  }
  grouped(c, "bf16", b, 200, 8, 48, 512, thin, true);
  constexpr const char* kWide[] = {"gemm_hopper_grouped_wide", "gemm_hopper_grouped_pairs"};
  for (const int64_t rows : {1400, 3000}) {
    for (const bool exact : {true, false}) {
      if (!c.smallest) grouped(c, "bf16", b, 10, rows, 400, 320, hopper ? "gemm_hopper_grouped_pairs" : nullptr, exact);
      if (!c.smallest)
        grouped(c, "bf16", b, 40, rows, 528, exact ? 192 : 832, hopper ? kWide[rows > 1400] : nullptr, exact);
    }
  }
  for (const int64_t rows : {90, 250, 700}) {
    grouped(c, "bf16", b, 10, rows, 272, 192, hopper ? "gemm_hopper_grouped_wide" : nullptr, rows == 250);
  }
  if (!c.smallest) grouped(c, "bf16", b, 10, 3000, 392, 320, hopper ? "gemm_hopper_grouped_128" : nullptr, true);
  for (const int64_t rows : {1, 7}) {
    grouped(c, "bf16", b, 10, rows, 200, 1088, hopper ? "gemm_hopper_grouped_32" : nullptr);
    grouped(c, "bf16", b, 10, rows, 136, 576, hopper ? "gemm_hopper_grouped_32" : nullptr);
  }
  grouped(c, "bf16", b, 130, c.smallest ? 300 : 2000, 72, 64,
          hopper && !c.smallest ? "gemm_hopper_grouped_128" : nullptr);
  grouped(c, "bf16", f, 7, 90, 40, 50);
  grouped(c, "f32", f, 7, 90, 40, 50);
  heads(c, b, 16, 1, 512, 128), heads(c, b, 16, 70, 128, 512), heads(c, f, 3, 5, 40, 24);
  heads(c, b, 70, 66, 136, 24);  // enough tiles for the large one on any GPU
  gates(c);
  const bool narrow = ops::product_type(c.gpu, 513) == DType::kBF16;
  c.report(narrow == blas && ops::product_type(c.gpu, 512) == DType::kF32, "product_type", "not that of this device");
  const int64_t many = c.smallest ? 80 : 333;
  active(c, many, 520, 264, ops::Activation::kGeluTanh, blas ? "cublaslt_gelu" : "activate_vector");
  active(c, many, 520, 264, ops::Activation::kGeluErf, "activate_vector");
  active(c, 3, 264, 512, ops::Activation::kGeluTanh, hopper ? "activate_vector" : nullptr);
  short_bias(c, many, 1152, 264, blas ? "cublaslt" : nullptr);
  short_bias(c, 5, 1000, 1024, nullptr);
  rows_of_weight(c);
}

}  // namespace tern::cuda_test
