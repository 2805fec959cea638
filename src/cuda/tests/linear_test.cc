// Products: every path, with and without cuBLASLt.
#include <cstring>

#include "cuda/tests/products.h"
#include "ops/vision.h"

namespace tern::cuda_test {
namespace {

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
  if (!c.own_turn()) return;
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
  if (!c.own_turn()) return;
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

void heads(Context& c, DType type, int count, int64_t rows, int64_t n, int64_t k) {
  if (!c.own_turn()) return;
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
  if (!c.own_turn()) return;
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

// Scores of experts are float32: of weights that have been bfloat16 and of others.
void router(Context& c, DType source, int64_t rows, int64_t experts, int64_t k, const char* kernel) {
  Weights w = pack(c, "f32", source, 1, experts, k, 41);
  if (w.gpu.empty()) return;
  Mirror x(c, DType::kBF16, {rows, k}, 8), out(c, DType::kF32, {rows, experts}, 3);
  x.random(42);
  const std::string name = title("router", source, {rows, experts, k});
  if (!c.both(name, ops::linear({x.cpu(), &w.cpu[0], {}, out.cpu()}, c.cpu),
              ops::linear({x.gpu(), &w.gpu[0], {}, out.gpu()}, c.gpu))) {
    return;
  }
  c.expect_kernel(name, kernel);
  compare(c, name, out, out.host(), 1e-5);
}

}  // namespace

void test_linear(Context& c) {
  const bool own = c.label == "no-cublaslt", deterministic = c.deterministic(), blas = !own && !deterministic,
             hopper = c.hopper();
  const auto own_or = [&](const char* always, const char* usual) {
    return !hopper ? nullptr : deterministic ? always : usual;
  };
  const auto few = [&](const char* kernel) { return hopper ? kernel : deterministic ? "gemm_mma_16" : "gemv"; };
  const DType b = DType::kBF16, f = DType::kF32;
  for (const DType out : {b, f}) {
    plain(c, "bf16", b, out, 0, 256, 512, false, 0, nullptr);
    plain(c, "bf16", b, out, 1, 1000, 1024, true, 0,
          few(deterministic ? "gemm_splitk_dsmem_16" : "gemm_register_resident"));
    plain(c, "bf16", b, out, 7, 1000, 3072, false, 8, hopper ? "gemm_splitk_dsmem_16" : nullptr);
    plain(c, "bf16", b, out, 7, 1000, 1544, false, 8, own_or("gemm_splitk_dsmem_16", "gemm_register_resident"));
    plain(c, "bf16", b, out, 4, 264, 4096, false, 8,
          few(deterministic ? "gemm_splitk_dsmem_16" : "gemm_register_resident_long"));
    // Weights that the copy engine brings: warps with less k than others, or none; up to 16 of them.
    plain(c, "bf16", b, out, 1, 1024, 1024, true, 0, own_or(nullptr, "gemm_smem_resident"));
    plain(c, "bf16", b, out, 8, 272, 64, false, 8, own_or(nullptr, "gemm_smem_resident"));
    plain(c, "bf16", b, out, 3, 48, 1344, true, 8, own_or(nullptr, "gemm_smem_resident"));
    if (!c.smallest) plain(c, "bf16", b, out, 5, 2048, 4096, false, 0, own_or(nullptr, "gemm_smem_resident"));
    plain(c, "bf16", b, out, 17, 520, 1096, false, 0,
          hopper ? "gemm_splitk_dsmem_32"
          : blas ? "cublaslt"
                 : "gemm_mma_16");
    plain(c, "bf16", b, out, 50, 72, 136, true, 0, hopper ? "gemm_wgmma_64" : nullptr);
    plain(c, "bf16", b, out, 16, 72, 136, true, 0, hopper ? "gemm_wgmma_16" : nullptr);
    plain(c, "bf16", b, out, 16, 256, 2048, true, 0, hopper ? "gemm_splitk_dsmem_16" : nullptr);
    // Parts of unequal length; as long as the ring of an H200 and longer.
    plain(c, "bf16", b, out, 40, 1000, 520, true, 8, hopper ? "gemm_splitk_dsmem_64" : nullptr);
    if (hopper && !c.smallest) plain(c, "bf16", b, out, 61, 1000, 3072, false, 0, "gemm_splitk_dsmem_64");
    if (hopper) plain(c, "bf16", b, out, 61, 264, 4096, false, 8, "gemm_splitk_dsmem_64");
    plain(c, "bf16", b, out, 100, 512, 2048, false, 0, blas ? "cublaslt" : hopper ? "gemm_wgmma_128" : nullptr);
    if (hopper && (!c.smallest || out == b)) {
      plain(c, "bf16", b, out, 6, 4300, 2056, true, 8, own_or("gemm_wgmma_8", "gemm_register_resident_long"));
    }
    if (hopper && !c.smallest) {  // more blocks than multiprocessors; weights of three turns
      plain(c, "bf16", b, out, 8, 2200, 3208, false, 8, own_or(nullptr, "gemm_register_resident"));
      plain(c, "bf16", b, out, 8, 856, 6152, true, 0, own_or(nullptr, "gemm_register_resident_long"));
    }
    if (c.smallest) plain(c, "bf16", b, out, 130, 520, 264, true, 0, nullptr);  // the tile of 128
    if (!c.smallest) {
      // By the size of the GPU.
      plain(c, "bf16", b, out, 333, 1000, 584, false, 0, blas ? "cublaslt" : hopper ? "gemm_wgmma_256" : nullptr);
      plain(c, "bf16", b, out, 1030, 2050, 264, true, 0, nullptr);
      plain(c, "bf16", b, out, 300, 2048, 264, true, 0, blas && out == f ? "cublaslt" : nullptr);
    }
    plain(c, "bf16", b, out, 9, 100, 588, false, 4, nullptr);  // patches: k is no multiple of 8
    // Many of them.
    plain(c, "bf16", b, out, 80, 104, 588, out == f, 0, blas ? "cublaslt" : "gemm_simple");
    plain(c, "bf16", b, out, 9, 100, 75, true, 0, "gemm_simple");  // rows that are not aligned
  }
  plain(c, "bf16", f, f, 1, 300, 512, false, 0, deterministic ? "gemm_simple" : "gemv");
  plain(c, "bf16", f, f, 70, 300, 515, true, 0, "gemm_simple");
  plain(c, "f32", f, f, 70, 128, 1000, false, 0, "gemm_simple");
  plain(c, "f32", b, f, 33, 64, 75, false, 0, "gemm_simple");
  if (deterministic && !c.smallest) same_bits(c, 1000, 3072);  // of up to 64 rows the parts are sent
  const char* most = hopper && !deterministic ? "gemm_router" : "gemm_mixed";
  for (const int64_t rows : {1, 20, 33, 200}) {
    for (const int64_t k : {264, 2200}) {
      plain(c, "f32", b, f, rows, 100, k, rows == 33, 0, hopper && rows <= 128 ? "gemm_mixed_cluster" : most);
    }
  }
  for (const DType source : {b, f}) router(c, source, 200, 128, 520, most);
  router(c, f, 600, 200, c.smallest ? 72 : 392, most);
  plain(c, "f32", b, f, 2100, 24, 264, true, 0, "gemm_mixed_many");
  if (deterministic) same_bits(c, 640, 1096);
  if (deterministic && !c.smallest) same_bits(c, 3000, 3080), same_bits(c, 2576, 1536, true);
  heads(c, b, 16, 1, 512, 128), heads(c, b, 16, 70, 128, 512), heads(c, f, 3, 5, 40, 24);
  heads(c, b, 70, 66, 136, 24);  // enough tiles for the large one on any GPU
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
