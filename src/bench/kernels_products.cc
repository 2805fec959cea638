// Linear layers: bfloat16 weights that no cache holds, float32 out as the decoder asks for it.
#include <fmt/format.h>

#include <tuple>

#include "bench/kernels.h"

namespace tern::bench {
namespace {

struct Shape {
  const char* what;
  int64_t n, k;
  int64_t most_rows;  // output layers see only rows whose logits are wanted
};

constexpr Shape kShapes[] = {
    {"reference", 14336, 4096, 8192},
    {"qwen3-8b qkv", 6144, 4096, 8192},
    {"qwen3-8b o", 4096, 4096, 8192},
    {"qwen3-8b gate_up", 24576, 4096, 8192},
    {"qwen3-8b down", 4096, 12288, 8192},
    {"qwen3-8b lm_head", 151936, 4096, 256},
    {"ernie-0.3b qkv", 2560, 1024, 8192},
    {"ernie-0.3b o", 1024, 2048, 8192},
    {"ernie-0.3b gate_up", 6144, 1024, 8192},
    {"ernie-0.3b down", 1024, 3072, 8192},
    {"ernie-0.3b lm_head", 103424, 1024, 256},
    {"qwen3-30b-a3b qkv", 5120, 2048, 8192},
    {"qwen3-30b-a3b o", 2048, 4096, 8192},
    {"qwen3-30b-a3b router", 128, 2048, 8192},
    {"paddleocr-vl tower qkv", 3456, 1152, 8192},
    {"paddleocr-vl tower fc1", 4304, 1152, 8192},
};
constexpr int64_t kRows[] = {1, 8, 16, 32, 64, 100, 128, 256, 2048, 8192};

// `format`: of the weight; `out_type`: as the decoder asks for it.
Expected<KernelCase> make(KernelBencher& bencher, int64_t rows, int64_t n, int64_t k, const char* format = "bf16",
                          DType out_type = DType::kF32) {
  TERN_ASSIGN_OR_RETURN(const size_t bytes, bencher.weight_bytes(n, k, format));
  const auto weight = static_cast<double>(bytes);
  KernelCase c;
  c.turns = bencher.turns(weight);
  c.bytes = weight + static_cast<double>(rows * k) * 2 +
            static_cast<double>(rows * n) * static_cast<double>(dtype_bytes(out_type));
  c.flops = 2.0 * static_cast<double>(rows) * static_cast<double>(n) * static_cast<double>(k);
  if (n % 8 == 0 && k % 8 == 0) c.peer = {.kind = device::MeasureKind::kProduct, .rows = rows, .n = n, .k = k};
  TERN_ASSIGN_OR_RETURN(const auto weights, bencher.weights(c.turns, n, k, format));
  TERN_ASSIGN_OR_RETURN(const TensorView x, bencher.random(DType::kBF16, rows, k));
  TERN_ASSIGN_OR_RETURN(const TensorView out, bencher.zeros(out_type, rows, n));
  c.run = [weights, x, out, stream = bencher.stream()](int turn) {
    return ops::linear({x, &weights[static_cast<size_t>(turn)], {}, out}, stream);
  };
  return c;
}

// gate_up and what follows it; the float32 rows between them may never come to be.
Expected<KernelCase> make_gated(KernelBencher& bencher, int64_t rows, int64_t width, int64_t k) {
  const double weight = static_cast<double>(2 * width * k) * 2;
  KernelCase c;
  c.turns = bencher.turns(weight);
  c.bytes = weight + static_cast<double>(rows * k) * 2 + static_cast<double>(rows * width) * 2;
  c.flops = 4.0 * static_cast<double>(rows) * static_cast<double>(width) * static_cast<double>(k);
  TERN_ASSIGN_OR_RETURN(const auto weights, bencher.weights(c.turns, 2 * width, k));
  TERN_ASSIGN_OR_RETURN(const TensorView x, bencher.random(DType::kBF16, rows, k));
  TERN_ASSIGN_OR_RETURN(const TensorView room, bencher.zeros(DType::kF32, rows, 2 * width));
  TERN_ASSIGN_OR_RETURN(const TensorView gated, bencher.zeros(DType::kBF16, rows, width));
  c.run = [weights, x, room, gated, stream = bencher.stream()](int turn) {
    return ops::gated_linear({x, &weights[static_cast<size_t>(turn)], {}, room}, gated, stream);
  };
  return c;
}

}  // namespace

std::vector<KernelBench> bench_products() {
  std::vector<KernelBench> items;
  for (const Shape& s : kShapes) {
    for (const int64_t rows : kRows) {
      if (rows > s.most_rows) continue;
      items.push_back({"products", fmt::format("{} {}x{} rows {}", s.what, s.n, s.k, rows),
                       [s, rows](KernelBencher& bencher) { return make(bencher, rows, s.n, s.k); }});
    }
  }
  for (const auto& [what, width, k] : {std::tuple("qwen3-8b", 12288, 4096), std::tuple("ernie-0.3b", 3072, 1024)}) {
    for (const int64_t rows : kRows) {
      items.push_back(
          {"products", fmt::format("{} gate_up and silu {}x{} rows {}", what, 2 * width, k, rows),
           [=, w = width, depth = k](KernelBencher& bencher) { return make_gated(bencher, rows, w, depth); }});
    }
  }
  return items;
}

// Weights by format, bfloat16 beside them: one product, and experts.
std::vector<KernelBench> bench_codes() {
  std::vector<KernelBench> items;
  for (const char* format : {"bf16", "wint8", "wint4", "wint4-128", "block_wise_fp8"}) {
    for (const int64_t rows : {1, 8, 16, 32, 64, 128, 4096}) {
      items.push_back({"codes", fmt::format("{} 14336x4096 rows {}", format, rows), [=](KernelBencher& bencher) {
                         return make(bencher, rows, 14336, 4096, format, ops::product_type(bencher.stream(), rows));
                       }});
    }
  }
  for (const char* format : {"bf16", "wint8", "wint4", "block_wise_fp8"}) {
    for (const int tokens : {8, 64}) items.push_back(bench_layer_of(format, tokens));
  }
  return items;
}

}  // namespace tern::bench
