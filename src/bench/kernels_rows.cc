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

Expected<LabCase> make_norm(Lab& lab, int64_t rows, int64_t width) {
  ops::RmsNormParams p;
  TERN_ASSIGN_OR_RETURN(p.x, lab.random(DType::kF32, rows, width));
  TERN_ASSIGN_OR_RETURN(p.residual, lab.zeros(DType::kF32, rows, width));
  TERN_ASSIGN_OR_RETURN(const TensorView weight, lab.random(DType::kBF16, 1, width));
  TERN_ASSIGN_OR_RETURN(p.out, lab.zeros(DType::kBF16, rows, width));
  p.weight = tensor1(weight.data, DType::kBF16, width);
  // A sum that grows through thousands of replays stays finite: x is added, then normalised away.
  LabCase c;
  c.bytes = size(p.x) + 2 * size(p.residual) + size(p.out);
  c.run = [p, stream = lab.stream()](int) { return ops::rms_norm(p, stream); };
  return c;
}

Expected<LabCase> make_layer_norm(Lab& lab, int64_t rows, int64_t width) {
  ops::LayerNormParams p;
  TERN_ASSIGN_OR_RETURN(p.x, lab.random(DType::kBF16, rows, width));
  TERN_ASSIGN_OR_RETURN(p.residual, lab.zeros(DType::kF32, rows, width));
  TERN_ASSIGN_OR_RETURN(const TensorView weight, lab.random(DType::kF32, 2, width));
  TERN_ASSIGN_OR_RETURN(p.out, lab.zeros(DType::kBF16, rows, width));
  p.weight = tensor1(weight.data, DType::kF32, width), p.bias = tensor1(weight.row_bytes(1), DType::kF32, width);
  LabCase c;
  c.bytes = size(p.x) + 2 * size(p.residual) + size(p.out);
  c.run = [p, stream = lab.stream()](int) { return ops::layer_norm(p, stream); };
  return c;
}

Expected<LabCase> make_gate(Lab& lab, int64_t rows, int64_t width) {
  ops::SiluMulParams p;
  TERN_ASSIGN_OR_RETURN(p.gate_up, lab.random(DType::kF32, rows, 2 * width));
  TERN_ASSIGN_OR_RETURN(p.out, lab.zeros(DType::kBF16, rows, width));
  LabCase c;
  c.bytes = size(p.gate_up) + size(p.out);
  c.run = [p, stream = lab.stream()](int) { return ops::silu_mul(p, stream); };
  return c;
}

Expected<LabCase> make_activation(Lab& lab, int64_t rows, int64_t width) {
  ops::ActivateParams p;
  TERN_ASSIGN_OR_RETURN(p.x, lab.random(DType::kF32, rows, width));
  TERN_ASSIGN_OR_RETURN(p.out, lab.zeros(DType::kBF16, rows, width));
  p.kind = ops::Activation::kGeluTanh;
  LabCase c;
  c.bytes = size(p.x) + size(p.out);
  c.run = [p, stream = lab.stream()](int) { return ops::activate(p, stream); };
  return c;
}

Expected<LabCase> make_qkv(Lab& lab, int rows, int heads, int kv_heads) {
  constexpr int kDim = 128, kBlock = 64;
  TERN_ASSIGN_OR_RETURN(ops::QkvPrepareParams p, lab_pass(lab, rows, heads, kv_heads, kDim));
  KvSpec spec;
  spec.arrangement =
      lab.device().info().kind == device::DeviceKind::kCpu ? KvArrangement::kCpuPacked : KvArrangement::kHeadsKV;
  spec.layers = 1, spec.kv_heads = kv_heads, spec.head_dim_k = spec.head_dim_v = kDim, spec.block_size = kBlock;
  const int64_t blocks = (rows + kBlock - 1) / kBlock + 1;
  TERN_ASSIGN_OR_RETURN(char* cache, lab.take(spec.block_bytes() * static_cast<size_t>(blocks)));
  p.cache = {cache, spec.layer_block_bytes(), spec};
  TERN_ASSIGN_OR_RETURN(p.q, lab.zeros(DType::kBF16, rows, int64_t{heads} * kDim));
  std::vector<int64_t> slots(static_cast<size_t>(rows));
  std::iota(slots.begin(), slots.end(), int64_t{kBlock});
  TERN_ASSIGN_OR_RETURN(int64_t * mapping, lab.values(slots));
  p.slot_mapping = tensor1(mapping, DType::kI64, rows);
  LabCase c;
  c.bytes = size(p.qkv) + 2.0 * static_cast<double>(p.qkv.dim[0] * p.qkv.dim[1]);  // read once, written as bfloat16
  c.run = [p, stream = lab.stream()](int) { return ops::qkv_prepare(p, stream); };
  return c;
}

Expected<LabCase> make_embedding(Lab& lab, int rows, int64_t vocab, int64_t width) {
  ops::EmbeddingParams p;
  TERN_ASSIGN_OR_RETURN(p.table, lab.random(DType::kBF16, vocab, width));
  std::vector<int32_t> ids(static_cast<size_t>(rows));
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i * 7919 % static_cast<size_t>(vocab));
  TERN_ASSIGN_OR_RETURN(p.ids, lab.ints(ids));
  TERN_ASSIGN_OR_RETURN(p.out, lab.zeros(DType::kF32, rows, width));
  LabCase c;
  c.bytes = size(p.out) * 1.5;
  c.run = [p, stream = lab.stream()](int) { return ops::embedding(p, stream); };
  return c;
}

}  // namespace

Expected<ops::QkvPrepareParams> lab_pass(Lab& lab, int64_t rows, int heads, int kv_heads, int dim) {
  ops::QkvPrepareParams p;
  p.heads = heads, p.kv_heads = kv_heads, p.head_dim = dim;
  TERN_ASSIGN_OR_RETURN(p.qkv,
                        lab.random(ops::product_type(lab.stream(), rows), rows, int64_t{heads + 2 * kv_heads} * dim));
  TERN_ASSIGN_OR_RETURN(const TensorView norms, lab.random(DType::kBF16, 2, dim));
  p.q_norm = tensor1(norms.data, DType::kBF16, dim), p.k_norm = tensor1(norms.row_bytes(1), DType::kBF16, dim);
  TERN_ASSIGN_OR_RETURN(p.cos, lab.random(DType::kF32, rows, dim / 2));
  TERN_ASSIGN_OR_RETURN(p.sin, lab.random(DType::kF32, rows, dim / 2));
  return p;
}

std::vector<LabItem> lab_rows() {
  std::vector<LabItem> items;
  const auto add = [&](std::string group, std::string shape, std::function<Expected<LabCase>(Lab&)> make) {
    items.push_back({std::move(group), std::move(shape), std::move(make)});
  };
  for (const int rows : {1, 32, 100, 256, 2048, 8192}) {
    for (const int64_t width : {1024, 2048, 4096}) {
      add("norm", fmt::format("residual + rms, {} x {}", rows, width),
          [=](Lab& lab) { return make_norm(lab, rows, width); });
    }
    for (const int64_t width : {3072, 12288}) {
      add("gating", fmt::format("silu, {} x {}", rows, width), [=](Lab& lab) { return make_gate(lab, rows, width); });
    }
    for (const auto& [heads, kv_heads] : {std::pair(16, 2), std::pair(32, 8)}) {
      add("rotary", fmt::format("norm, rotation, cache write, {}/{} heads, {} rows", heads, kv_heads, rows),
          [=, h = heads, kv = kv_heads](Lab& lab) { return make_qkv(lab, rows, h, kv); });
    }
    add("embedding", fmt::format("{} rows of 103424 x 1024", rows),
        [=](Lab& lab) { return make_embedding(lab, rows, 103424, 1024); });
  }
  add("norm", "sum and layer norm, 5184 x 1152", [](Lab& lab) { return make_layer_norm(lab, 5184, 1152); });
  add("gating", "gelu tanh, 5184 x 4304", [](Lab& lab) { return make_activation(lab, 5184, 4304); });
  return items;
}

}  // namespace tern::bench
