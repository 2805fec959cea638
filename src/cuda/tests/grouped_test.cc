// Products per expert, and gates behind products.
#include <algorithm>

#include "cuda/tests/products.h"
#include "ops/moe.h"

namespace tern::cuda_test {
namespace {

void grouped(Context& c, const char* format, DType type, int experts, int64_t rows, int64_t n, int64_t k,
             const char* kernel = nullptr, bool exact = false) {
  if (!c.own_turn()) return;
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

void grouped_gated(Context& c, int experts, int64_t rows, int64_t half, int64_t k, const char* kernel) {
  if (!c.own_turn()) return;
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

// Rows that the sort leaves among the tokens: the bits of those that it moves.
void gathered(Context& c, int experts, int64_t tokens, int64_t half, int64_t k, const char* kernel) {
  constexpr int64_t kTop = 8;
  const int64_t rows = tokens * kTop;
  Weights w = pack(c, "bf16", DType::kBF16, experts, 2 * half, k, 81);
  if (w.gpu.empty()) return;
  Mirror x(c, DType::kBF16, {tokens, k}, 8), ids(c, DType::kI32, {tokens, kTop}),
      offsets(c, DType::kI32, {experts + 1}), row_of(c, DType::kI32, {tokens, kTop}), token_of(c, DType::kI32, {rows}),
      sorted(c, DType::kBF16, {rows, k}), between(c, DType::kF32, {rows, 2 * half}), out(c, DType::kBF16, {rows, half}),
      moved(c, DType::kBF16, {rows, half});
  x.random(82);
  std::vector<int32_t> choice;
  for (int64_t i = 0; i < rows; ++i) choice.push_back(static_cast<int32_t>((i % 7 == 0 ? 0 : i * i + i / 7) % experts));
  ids.fill(choice);
  const std::string name = title("rows left among the tokens", DType::kBF16, {experts, tokens, half, k});
  const auto run = [&](bool gpu, bool left, const Mirror& to) -> Status {
    const auto v = [&](const Mirror& m) { return gpu ? m.gpu() : m.cpu(); };
    const device::Stream stream = gpu ? c.gpu : c.cpu;
    const TensorView from = left ? v(token_of) : TensorView{};
    TERN_RETURN_IF_ERROR(ops::moe_permute({v(x), v(ids), experts, v(offsets), v(row_of), v(sorted), from}, stream));
    if (gpu && left) c.expect_kernel(name, c.hopper() ? "moe_sort" : rows <= 2048 ? "moe_permute_few" : "moe_permute");
    return ops::grouped_gated_linear(
        {v(sorted), v(offsets), gpu ? w.gpu : w.cpu, v(between), left ? v(x) : TensorView{}, from}, v(to), stream);
  };
  if (!c.both(name, run(false, true, out), run(true, true, out))) return;
  if (kernel != nullptr) c.expect_kernel(name, kernel);
  compare(c, name, out, out.host(), 1.0 / 100);
  if (!c.both(name, {}, run(true, false, moved))) return;
  const std::vector<char> want = moved.copy_to_host();
  compare(c, name + " bits", out, want.data(), 0);
}

void gates(Context& c) {
  const bool hopper = c.hopper(), fused = hopper && c.deterministic();
  gated(c, 1, 200, 512, true, fused ? "gemm_splitk_dsmem_16" : hopper ? "gemm_smem_resident" : "silu_mul_vector");
  gated(c, 8, 1029, 1032, false, fused ? "gemm_wgmma_8" : hopper ? "gemm_register_resident" : nullptr);
  gated(c, 17, 330, 1096, false, hopper ? "gemm_wgmma_32" : nullptr);
  gated(c, 15, 328, 1088, true, hopper ? "gemm_splitk_dsmem_16" : nullptr);
  gated(c, 30, 328, 1088, true, hopper ? "gemm_splitk_dsmem_32" : nullptr);
  gated(c, 60, 512, 2048, true, hopper ? "gemm_splitk_dsmem_64" : "silu_mul_vector");
  gated(c, 100, 200, 512, false, fused ? "gemm_wgmma_128" : nullptr);
  gated(c, 300, 256, 264, false, fused ? "gemm_wgmma_256" : nullptr);
  gated(c, 300, 256, 264, true, "silu_mul_vector", DType::kBF16);
  if (hopper) {
    // 64 of 66 places on an H200, edges in every direction.
    const char* large = fused ? "gemm_wgmma_256" : "gemm_gate";
    if (!c.smallest) gated(c, 2040, 1016, 1096, false, large);
    gated(c, 4090, 504, 72, false, fused ? "silu_mul_vector" : large, DType::kBF16);
    // Of fewer rows a cluster of four, which fills an H200 once: tiles of 56 and of 104 columns.
    for (const int64_t rows : c.pick<int64_t>({200, 390, 256, 512}, 2)) {
      if (!fused) gated(c, rows, 3072, c.smallest ? 72 : rows == 256 ? 1032 : 328, false, "gemm_gate_four");
    }
    if (!c.smallest && !fused) gated(c, 1000, 3072, 328, false, "gemm_gate_four");  // two tiles a cluster
  }
  if (hopper && !c.smallest) {
    gated(c, 2, 3072, 1024, true, fused ? "gemm_splitk_dsmem_16" : "gemm_smem_resident");
    gated(c, 7, 3072, 1024, true, "gemm_splitk_dsmem_16");
  }
  for (const int64_t k : {72, 136}) {  // one run of k, and two
    if (hopper) gated(c, 7, 3072, k, true, fused ? nullptr : "gemm_register_resident");
  }
  const char* few = !hopper ? nullptr : c.deterministic() ? "gemm_wgmma_grouped_32" : "gemm_wgmma_grouped_few";
  grouped_gated(c, 10, 30, 100, 256, hopper ? "gemm_wgmma_grouped_32" : nullptr);
  grouped_gated(c, 10, 4, 100, 1088, hopper ? "gemm_wgmma_grouped_32" : nullptr);
  for (const int64_t k : {256, 512, 768, 1024, 1536, 2048, 2560, 4096}) grouped_gated(c, 10, 8, 104, k, few);
  grouped_gated(c, 130, 8, 64, 2048, few);
  grouped_gated(c, c.smallest ? 3 : 10, c.smallest ? 500 : 2000, 328, 320,
                hopper ? "gemm_wgmma_grouped_pairs" : nullptr);
  if (!c.smallest) {
    grouped_gated(c, 130, 9000, 136, 128, hopper ? "gemm_wgmma_grouped_wide" : nullptr);
    grouped_gated(c, 60, 5000, 264, 128, hopper ? "gemm_wgmma_grouped_pairs" : nullptr);
  }
  grouped_gated(c, 10, 500, 136, 192, hopper ? "gemm_wgmma_grouped_wide" : nullptr);
  grouped_gated(c, 10, 500, 100, 192, hopper ? "gemm_wgmma_grouped_128" : nullptr);
  gathered(c, 40, 300, 136, 192, hopper ? "gemm_wgmma_gather_wide" : nullptr);
  gathered(c, 10, 260, 264, 320, hopper ? "gemm_wgmma_gather_pairs" : nullptr);
  gathered(c, 10, 131, 72, 128, hopper ? "gemm_wgmma_gather_pairs" : nullptr);
  gathered(c, 10, 260, 100, 192, hopper ? "gemm_wgmma_grouped_128" : nullptr);  // moved after all
  if (!c.smallest) gathered(c, 100, 1500, 328, 832, hopper ? "gemm_wgmma_gather_pairs" : nullptr);
}

}  // namespace

void test_grouped(Context& c) {
  const bool deterministic = c.deterministic(), hopper = c.hopper();
  const DType b = DType::kBF16, f = DType::kF32;
  const char* thin = !hopper ? nullptr : deterministic ? "gemm_wgmma_grouped_32" : "gemm_wgmma_grouped_few";
  for (const int64_t rows : c.pick<int64_t>({1, 40, 700}, 2)) {
    grouped(c, "bf16", b, 10, rows, 136, 264);
    grouped(c, "bf16", b, 10, rows, 200, 256,
            hopper ? rows > 80 ? "gemm_wgmma_grouped_128" : "gemm_wgmma_grouped_32" : nullptr);
    grouped(c, "bf16", b, 10, rows, 200, 256,
            hopper ? rows > 80 ? "gemm_wgmma_grouped_128" : "gemm_wgmma_grouped_32" : nullptr, true);
  }
  for (const int64_t rows : {1, 5, 8}) {
    for (const int64_t k : {256, 768, 2048}) grouped(c, "bf16", b, 10, rows, 208, k, thin, rows == 5);
  }
  grouped(c, "bf16", b, 200, 8, 48, 512, thin, true);
  constexpr const char* kWide[] = {"gemm_wgmma_grouped_wide", "gemm_wgmma_grouped_pairs"};
  for (const int64_t rows : {1400, 3000}) {
    for (const bool exact : {true, false}) {
      if (!c.smallest) grouped(c, "bf16", b, 10, rows, 400, 320, hopper ? "gemm_wgmma_grouped_pairs" : nullptr, exact);
      if (!c.smallest)
        grouped(c, "bf16", b, 40, rows, 528, exact ? 192 : 832, hopper ? kWide[rows > 1400] : nullptr, exact);
    }
  }
  for (const int64_t rows : {90, 250, 700}) {
    grouped(c, "bf16", b, 10, rows, 272, 192, hopper ? "gemm_wgmma_grouped_wide" : nullptr, rows == 250);
  }
  if (!c.smallest) grouped(c, "bf16", b, 10, 3000, 392, 320, hopper ? "gemm_wgmma_grouped_128" : nullptr, true);
  for (const int64_t rows : {1, 7}) {
    grouped(c, "bf16", b, 10, rows, 200, 1088, hopper ? "gemm_wgmma_grouped_32" : nullptr);
    grouped(c, "bf16", b, 10, rows, 136, 576, hopper ? "gemm_wgmma_grouped_32" : nullptr);
  }
  grouped(c, "bf16", b, 130, c.smallest ? 300 : 2000, 72, 64,
          hopper && !c.smallest ? "gemm_wgmma_grouped_128" : nullptr);
  grouped(c, "bf16", f, 7, 90, 40, 50);
  grouped(c, "f32", f, 7, 90, 40, 50);
  gates(c);
}

}  // namespace tern::cuda_test
