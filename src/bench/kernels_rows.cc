// What lies between the products of a layer: norms, rotation and cache write, gating, embeddings.
#include <fmt/format.h>

#include <numeric>

#include "bench/kernels.h"
#include "ops/activation.h"
#include "ops/embedding.h"
#include "ops/linear.h"
#include "ops/norm.h"
#include "ops/vision.h"

namespace tern::bench {
namespace {

double size(const TensorView& t) { return static_cast<double>(t.numel()) * static_cast<double>(dtype_bytes(t.dtype)); }

Expected<KernelCase> make_norm(KernelBencher& bencher, int64_t rows, int64_t width) {
  ops::RmsNormParams p;
  TERN_ASSIGN_OR_RETURN(p.x, bencher.random(DType::kF32, rows, width));
  TERN_ASSIGN_OR_RETURN(p.residual, bencher.zeros(DType::kF32, rows, width));
  TERN_ASSIGN_OR_RETURN(const TensorView weight, bencher.random(DType::kBF16, 1, width));
  TERN_ASSIGN_OR_RETURN(p.out, bencher.zeros(DType::kBF16, rows, width));
  p.weight = tensor1(weight.data, DType::kBF16, width);
  // A sum that grows through thousands of replays stays finite: x is added, then normalised away.
  KernelCase c;
  c.bytes = size(p.x) + 2 * size(p.residual) + size(p.out);
  c.run = [p, stream = bencher.stream()](int) { return ops::rms_norm(p, stream); };
  return c;
}

Expected<KernelCase> make_layer_norm(KernelBencher& bencher, int64_t rows, int64_t width) {
  ops::LayerNormParams p;
  TERN_ASSIGN_OR_RETURN(p.x, bencher.random(DType::kBF16, rows, width));
  TERN_ASSIGN_OR_RETURN(p.residual, bencher.zeros(DType::kF32, rows, width));
  TERN_ASSIGN_OR_RETURN(const TensorView weight, bencher.random(DType::kF32, 2, width));
  TERN_ASSIGN_OR_RETURN(p.out, bencher.zeros(DType::kBF16, rows, width));
  p.weight = tensor1(weight.data, DType::kF32, width), p.bias = tensor1(weight.row_bytes(1), DType::kF32, width);
  KernelCase c;
  c.bytes = size(p.x) + 2 * size(p.residual) + size(p.out);
  c.run = [p, stream = bencher.stream()](int) { return ops::layer_norm(p, stream); };
  return c;
}

Expected<KernelCase> make_gate(KernelBencher& bencher, int64_t rows, int64_t width) {
  ops::SiluMulParams p;
  TERN_ASSIGN_OR_RETURN(p.gate_up, bencher.random(DType::kF32, rows, 2 * width));
  TERN_ASSIGN_OR_RETURN(p.out, bencher.zeros(DType::kBF16, rows, width));
  KernelCase c;
  c.bytes = size(p.gate_up) + size(p.out);
  c.run = [p, stream = bencher.stream()](int) { return ops::silu_mul(p, stream); };
  return c;
}

Expected<KernelCase> make_activation(KernelBencher& bencher, int64_t rows, int64_t width) {
  ops::ActivateParams p;
  TERN_ASSIGN_OR_RETURN(p.x, bencher.random(DType::kF32, rows, width));
  TERN_ASSIGN_OR_RETURN(p.out, bencher.zeros(DType::kBF16, rows, width));
  p.kind = ops::Activation::kGeluTanh;
  KernelCase c;
  c.bytes = size(p.x) + size(p.out);
  c.run = [p, stream = bencher.stream()](int) { return ops::activate(p, stream); };
  return c;
}

Expected<KernelCase> make_qkv(KernelBencher& bencher, int rows, int heads, int kv_heads) {
  constexpr int kDim = 128, kBlockRows = 64;
  TERN_ASSIGN_OR_RETURN(ops::QkvPrepareParams p, qkv_prepare_params(bencher, rows, heads, kv_heads, kDim));
  KvSpec spec;
  spec.arrangement =
      bencher.device().info().kind == device::DeviceKind::kCpu ? KvArrangement::kCpuPacked : KvArrangement::kHeadsKV;
  spec.layers = 1, spec.kv_heads = kv_heads, spec.head_dim_k = spec.head_dim_v = kDim, spec.block_size = kBlockRows;
  const int64_t blocks = (rows + kBlockRows - 1) / kBlockRows + 1;
  TERN_ASSIGN_OR_RETURN(char* cache, bencher.take(spec.block_bytes() * static_cast<size_t>(blocks)));
  p.cache = {cache, spec.layer_block_bytes(), spec};
  TERN_ASSIGN_OR_RETURN(p.q, bencher.zeros(DType::kBF16, rows, int64_t{heads} * kDim));
  std::vector<int64_t> slots(static_cast<size_t>(rows));
  std::iota(slots.begin(), slots.end(), int64_t{kBlockRows});
  TERN_ASSIGN_OR_RETURN(int64_t * mapping, bencher.values(slots));
  p.slot_mapping = tensor1(mapping, DType::kI64, rows);
  KernelCase c;
  c.bytes = size(p.qkv) + 2.0 * static_cast<double>(p.qkv.dim[0] * p.qkv.dim[1]);  // read once, written as bfloat16
  c.run = [p, stream = bencher.stream()](int) { return ops::qkv_prepare(p, stream); };
  return c;
}

Expected<KernelCase> make_embedding(KernelBencher& bencher, int rows, int64_t vocab, int64_t width) {
  ops::EmbeddingParams p;
  TERN_ASSIGN_OR_RETURN(p.table, bencher.random(DType::kBF16, vocab, width));
  std::vector<int32_t> ids(static_cast<size_t>(rows));
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i * 7919 % static_cast<size_t>(vocab));
  TERN_ASSIGN_OR_RETURN(p.ids, bencher.ints(ids));
  TERN_ASSIGN_OR_RETURN(p.out, bencher.zeros(DType::kF32, rows, width));
  KernelCase c;
  c.bytes = size(p.out) * 1.5;
  c.run = [p, stream = bencher.stream()](int) { return ops::embedding(p, stream); };
  return c;
}

}  // namespace

Expected<ops::QkvPrepareParams> qkv_prepare_params(KernelBencher& bencher, int64_t rows, int heads, int kv_heads,
                                                   int dim) {
  ops::QkvPrepareParams p;
  p.heads = heads, p.kv_heads = kv_heads, p.head_dim = dim;
  TERN_ASSIGN_OR_RETURN(
      p.qkv, bencher.random(ops::product_type(bencher.stream(), rows), rows, int64_t{heads + 2 * kv_heads} * dim));
  TERN_ASSIGN_OR_RETURN(const TensorView norms, bencher.random(DType::kBF16, 2, dim));
  p.q_norm = tensor1(norms.data, DType::kBF16, dim), p.k_norm = tensor1(norms.row_bytes(1), DType::kBF16, dim);
  TERN_ASSIGN_OR_RETURN(p.cos, bencher.random(DType::kF32, rows, dim / 2));
  TERN_ASSIGN_OR_RETURN(p.sin, bencher.random(DType::kF32, rows, dim / 2));
  return p;
}

std::vector<KernelBench> bench_rows() {
  std::vector<KernelBench> items;
  const auto add = [&](std::string group, std::string shape, std::function<Expected<KernelCase>(KernelBencher&)> make) {
    items.push_back({std::move(group), std::move(shape), std::move(make)});
  };
  for (const int rows : {1, 32, 100, 256, 2048, 8192}) {
    for (const int64_t width : {1024, 2048, 4096}) {
      add("norm", fmt::format("residual + rms, {} x {}", rows, width),
          [=](KernelBencher& bencher) { return make_norm(bencher, rows, width); });
    }
    for (const int64_t width : {3072, 12288}) {
      add("gating", fmt::format("silu, {} x {}", rows, width),
          [=](KernelBencher& bencher) { return make_gate(bencher, rows, width); });
    }
    for (const auto& [heads, kv_heads] : {std::pair(16, 2), std::pair(32, 8)}) {
      add("rotary", fmt::format("norm, rotation, cache write, {}/{} heads, {} rows", heads, kv_heads, rows),
          [=, h = heads, kv = kv_heads](KernelBencher& bencher) { return make_qkv(bencher, rows, h, kv); });
    }
    add("embedding", fmt::format("{} rows of 103424 x 1024", rows),
        [=](KernelBencher& bencher) { return make_embedding(bencher, rows, 103424, 1024); });
  }
  add("norm", "sum and layer norm, 5184 x 1152",
      [](KernelBencher& bencher) { return make_layer_norm(bencher, 5184, 1152); });
  add("gating", "gelu tanh, 5184 x 4304", [](KernelBencher& bencher) { return make_activation(bencher, 5184, 4304); });
  return items;
}

}  // namespace tern::bench
