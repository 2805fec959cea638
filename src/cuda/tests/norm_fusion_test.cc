// A norm done by the products before and behind it (cuda/fusion/norm_fusion.h), against the CPU; and what must not be
// joined.
#include "cuda/tests/harness.h"
#include "cuda/tests/products.h"
#include "ops/deferral.h"
#include "ops/norm.h"

namespace tern::cuda_test {
namespace {

struct Layer {
  int64_t rows, mixed, hidden, inner, next;  // widths
  const char *gated, *last;                  // the kernels that read what a norm leaves
  bool bias = false;                         // of gate, up and the last product
  DType norm_type = DType::kBF16;
  const char* format = "bf16";  // of all weights
};

// One layer's weights and values on both sides: o, gate and up, down, QKV.
struct Bench {
  Bench(Context& c, const Layer& l)
      : mixed(c, DType::kBF16, {l.rows, l.mixed}, 8),
        residual(c, DType::kF32, {l.rows, l.hidden}, 4),
        delta(c, DType::kF32, {l.rows, l.hidden}),
        x(c, DType::kBF16, {l.rows, l.hidden}, 8),
        between(c, DType::kF32, {l.rows, 2 * l.inner}),
        gated(c, DType::kBF16, {l.rows, l.inner}),
        out(c, DType::kF32, {l.rows, l.next}, 8),
        norm(c, l.norm_type, {l.hidden}),
        bias(c, DType::kF32, {2 * l.inner}),
        last_bias(c, DType::kF32, {l.next}) {
    mixed.random(1), norm.random(2), bias.random(3), last_bias.random(4);
    const auto add = [&](int64_t n, int64_t k, uint32_t seed) {
      Weights w = pack(c, l.format, DType::kBF16, 1, n, k, seed);
      if (w.gpu.empty()) return;
      cpu.push_back(std::move(w.cpu[0])), gpu.push_back(std::move(w.gpu[0]));
    };
    add(l.hidden, l.mixed, 11), add(2 * l.inner, l.hidden, 12), add(l.hidden, l.inner, 13), add(l.next, l.hidden, 14);
  }
  bool ready() const { return gpu.size() == 4; }
  Mirror mixed, residual, delta, x, between, gated, out, norm, bias, last_bias;
  std::vector<ops::PackedWeight> cpu, gpu;
};

// `reader`: the kernel of the gated product.
Status layer(Context& c, const Layer& l, Bench& b, bool on_gpu, bool once, std::string* reader = nullptr) {
  const auto view = [&](const Mirror& m) { return on_gpu ? m.gpu() : m.cpu(); };
  const std::vector<ops::PackedWeight>& w = on_gpu ? b.gpu : b.cpu;
  const device::Stream stream = on_gpu ? c.gpu : c.cpu;
  const ops::RmsNormParams norm{view(b.delta), view(b.residual), view(b.norm), view(b.x), 1e-5f, once};
  const TensorView bias = l.bias ? view(b.bias) : TensorView{}, last = l.bias ? view(b.last_bias) : TensorView{};
  TERN_RETURN_IF_ERROR(ops::linear({view(b.mixed), &w[0], {}, view(b.delta)}, stream));
  TERN_RETURN_IF_ERROR(ops::rms_norm(norm, stream));
  TERN_RETURN_IF_ERROR(ops::gated_linear({view(b.x), &w[1], bias, view(b.between)}, view(b.gated), stream));
  if (reader != nullptr) *reader = c.cuda->last_kernel(stream);
  TERN_RETURN_IF_ERROR(ops::linear({view(b.gated), &w[2], {}, view(b.delta)}, stream));
  TERN_RETURN_IF_ERROR(ops::rms_norm(norm, stream));
  return ops::linear({view(b.x), &w[3], last, view(b.out)}, stream);
}

Status joined(Context& c, const Layer& l, Bench& b, bool once, std::string* reader = nullptr) {
  ops::begin_deferral(c.gpu, l.rows);
  const Status s = layer(c, l, b, true, once, reader);
  const Status closed = ops::end_deferral(c.gpu);
  return s.ok() ? closed : s;
}

void layers(Context& c, const Layer& l, bool once) {
  if (!c.own_turn()) return;
  Bench b(c, l);
  if (!b.ready()) return;
  const std::string name = title(std::string(once ? "joined " : "not joined ") + l.format, l.norm_type,
                                 {l.rows, l.mixed, l.hidden, l.inner});
  b.residual.random(5);
  std::string reader;
  if (!c.both(name, layer(c, l, b, false, once), joined(c, l, b, once, &reader))) return;
  const bool expected = once && c.hopper() && !c.deterministic();
  if (expected && l.gated != nullptr) {
    c.report(reader == l.gated, name, "the gated product by " + reader);
    c.kernels.insert(reader);
  }
  if (expected && l.last != nullptr) c.expect_kernel(name, l.last);
  compare(c, name + " sum", b.residual, b.residual.host(), 1.0 / 100);
  compare(c, name + " gated", b.gated, b.gated.host(), 2.0 / 100);
  compare(c, name + " out", b.out, b.out.host(), 2.0 / 100);
  if (once) return;
  compare(c, name + " delta", b.delta, b.delta.host(), 1.0 / 100);
  compare(c, name + " normed", b.x, b.x.host(), 2.0 / 100);
}

// Again and again: the same bits.
void again(Context& c, const Layer& l, int times) {
  Bench b(c, l);
  if (!b.ready()) return;
  std::vector<char> first;
  bool same = true;
  for (int i = 0; i < times; ++i) {
    b.residual.random(5);
    if (const Status s = joined(c, l, b, true); !s.ok()) return c.report(false, "joined", s.error().message);
    const std::vector<char> out = b.out.copy_to_host();
    if (i == 0) first = out;
    same = same && out == first;
  }
  c.report(same, title("joined again", DType::kBF16, {l.rows, l.hidden}), "the same bits");
}

// Products with norms between them, one after another: with both sides of a product a norm, or where a norm leaves its
// rows in the place that the product before it reads.
void chain(Context& c, int64_t rows, int64_t width, bool in_place) {
  if (!c.own_turn()) return;
  Mirror a(c, DType::kBF16, {rows, width}), b(c, DType::kBF16, {rows, width}), sum(c, DType::kF32, {rows, width}),
      delta(c, DType::kF32, {rows, width}), out(c, DType::kF32, {rows, width}), norm(c, DType::kBF16, {width});
  Weights w = pack(c, "bf16", DType::kBF16, 3, width, width, 31);
  if (w.gpu.size() != 3) return;
  a.random(1), sum.random(2), norm.random(3);
  const auto run = [&](bool on_gpu) -> Status {
    const auto view = [&](const Mirror& m) { return on_gpu ? m.gpu() : m.cpu(); };
    const auto& weights = on_gpu ? w.gpu : w.cpu;
    const device::Stream stream = on_gpu ? c.gpu : c.cpu;
    const Mirror* at[3] = {&a, in_place ? &a : &b, &a};
    ops::begin_deferral(stream, rows);
    for (size_t i = 0; i < 2; ++i) {
      const TensorView rows_behind = view(*at[i + 1]);
      TERN_RETURN_IF_ERROR(ops::linear({view(*at[i]), &weights[i], {}, view(delta)}, stream));
      TERN_RETURN_IF_ERROR(ops::rms_norm({view(delta), view(sum), view(norm), rows_behind, 1e-5f, true}, stream));
    }
    TERN_RETURN_IF_ERROR(ops::linear({view(a), &weights[2], {}, view(out)}, stream));
    return ops::end_deferral(stream);
  };
  const std::string name = title(in_place ? "norms in place" : "norms in a row", DType::kBF16, {rows, width});
  if (!c.both(name, run(false), run(true))) return;
  compare(c, name + " sum", sum, sum.host(), 1.0 / 100);
  compare(c, name + " out", out, out.host(), 2.0 / 100);
}

// Two products with a norm between them, the first one [n, k].
void pair(Context& c, int64_t rows, int64_t k, int64_t n, int64_t next, const char* kernel) {
  if (!c.own_turn()) return;
  Mirror x(c, DType::kBF16, {rows, k}), between(c, DType::kBF16, {rows, n}), sum(c, DType::kF32, {rows, n}),
      delta(c, DType::kF32, {rows, n}), out(c, DType::kF32, {rows, next}), norm(c, DType::kBF16, {n});
  Weights first = pack(c, "bf16", DType::kBF16, 1, n, k, 41), second = pack(c, "bf16", DType::kBF16, 1, next, n, 42);
  if (first.gpu.empty() || second.gpu.empty()) return;
  x.random(1), sum.random(2), norm.random(3);
  const auto run = [&](bool on_gpu) -> Status {
    const auto view = [&](const Mirror& m) { return on_gpu ? m.gpu() : m.cpu(); };
    const device::Stream stream = on_gpu ? c.gpu : c.cpu;
    ops::begin_deferral(stream, rows);
    TERN_RETURN_IF_ERROR(ops::linear({view(x), on_gpu ? &first.gpu[0] : &first.cpu[0], {}, view(delta)}, stream));
    TERN_RETURN_IF_ERROR(ops::rms_norm({view(delta), view(sum), view(norm), view(between), 1e-5f, true}, stream));
    TERN_RETURN_IF_ERROR(ops::linear({view(between), on_gpu ? &second.gpu[0] : &second.cpu[0], {}, view(out)}, stream));
    return ops::end_deferral(stream);
  };
  const std::string name = title("a norm between", DType::kBF16, {rows, k, n, next});
  if (!c.both(name, run(false), run(true))) return;
  if (c.hopper() && !c.deterministic()) c.expect_kernel(name, kernel);
  compare(c, name + " sum", sum, sum.host(), 1.0 / 100);
  compare(c, name + " out", out, out.host(), 2.0 / 100);
}

// Nothing behind the norm, and nothing behind the product.
void left_alone(Context& c, int64_t rows, bool with_norm) {
  const Layer l{rows, 512, 1024, 256, 512, nullptr, nullptr};
  Bench b(c, l);
  if (!b.ready()) return;
  b.residual.random(5);
  const auto run = [&](bool on_gpu) -> Status {
    const auto view = [&](const Mirror& m) { return on_gpu ? m.gpu() : m.cpu(); };
    const device::Stream stream = on_gpu ? c.gpu : c.cpu;
    ops::begin_deferral(stream, rows);
    TERN_RETURN_IF_ERROR(ops::linear({view(b.mixed), on_gpu ? &b.gpu[0] : &b.cpu[0], {}, view(b.delta)}, stream));
    if (with_norm) {
      TERN_RETURN_IF_ERROR(
          ops::rms_norm({view(b.delta), view(b.residual), view(b.norm), view(b.x), 1e-5f, true}, stream));
    }
    return ops::end_deferral(stream);
  };
  const std::string name = title("put off", DType::kBF16, {rows, with_norm});
  if (!c.both(name, run(false), run(true))) return;
  compare(c, name + " delta", b.delta, b.delta.host(), 1.0 / 100);
  compare(c, name + " sum", b.residual, b.residual.host(), 1.0 / 100);
  if (with_norm) compare(c, name + " normed", b.x, b.x.host(), 2.0 / 100);
}

// A product of many rows in parts of k, which the norm behind it adds up (`parts`: whether it may be), or one that adds
// to the residual by itself.
void parted(Context& c, int64_t rows, int64_t k, int64_t n, bool parts, bool once = true) {
  if (!c.own_turn()) return;
  Mirror x(c, DType::kBF16, {rows, k}), normed(c, DType::kBF16, {rows, n}, 8), sum(c, DType::kF32, {rows, n}, 4),
      delta(c, DType::kF32, {rows, n}), norm(c, DType::kBF16, {n});
  const Weights w = pack(c, "bf16", DType::kBF16, 1, n, k, 51);
  if (w.gpu.empty()) return;
  const std::string name = title("parts and a norm", DType::kBF16, {rows, k, n, once});
  std::vector<char> first;
  for (int i = 0; i < 2; ++i) {
    x.random(1), sum.random(2), norm.random(3), delta.random(4);
    const std::vector<char> before = delta.copy_to_host();
    const auto run = [&](bool on_gpu) -> Status {
      const auto view = [&](const Mirror& m) { return on_gpu ? m.gpu() : m.cpu(); };
      const device::Stream stream = on_gpu ? c.gpu : c.cpu;
      ops::begin_deferral(stream, rows);
      TERN_RETURN_IF_ERROR(ops::linear({view(x), on_gpu ? &w.gpu[0] : &w.cpu[0], {}, view(delta)}, stream));
      TERN_RETURN_IF_ERROR(ops::rms_norm({view(delta), view(sum), view(norm), view(normed), 1e-5f, once}, stream));
      return ops::end_deferral(stream);
    };
    if (!c.both(name, run(false), run(true))) return;
    if (c.hopper()) c.expect_kernel(name, parts && once && !c.deterministic() ? "rms_norm_parts" : "rms_norm_vector");
    compare(c, name + " sum", sum, sum.host(), 1.0 / 100);
    compare(c, name + " normed", normed, normed.host(), 2.0 / 100);
    // Neither leaves what comes between.
    if (c.hopper() && (rows > 128 || (parts && !c.deterministic())))
      c.report((delta.copy_to_host() == before) == once, name, "delta");
    const std::vector<char> bits = sum.copy_to_host();
    if (i > 0) c.report(bits == first, name, "the same bits");
    first = bits;
  }
  if (!once) compare(c, name + " delta", delta, delta.host(), 1.0 / 100);
}

constexpr const char *kResident = "gemm_register_resident_normed", *kKept = "gemm_register_resident_long_normed",
                     *kBox = "gemm_smem_resident_normed";

// Nine rows and more, and large weights.
void wider(Context& c) {
  for (const int64_t rows : {9, 16}) {
    layers(c, {rows, 2048, 1024, 3072, 2560, "gemm_splitk_dsmem_16_normed", "gemm_splitk_dsmem_16_normed"}, true);
  }
  for (const int64_t rows : {17, 30, 32}) {
    layers(c, {rows, 2048, 1024, 3072, 2560, "gemm_splitk_dsmem_32_normed", "gemm_splitk_dsmem_32_normed"}, true);
  }
  for (const int64_t rows : {33, 61, 64}) {
    layers(c, {rows, 2048, 1024, 3072, 2560, "gemm_splitk_dsmem_64_normed", "gemm_splitk_dsmem_64_normed", true}, true);
    chain(c, rows, 1024, false), chain(c, rows, 1024, true);
  }
  for (const int64_t rows : {3, 8, 13, 27, 32, 50, 64}) {
    const int tile = rows <= 8 ? 8 : rows <= 16 ? 16 : rows <= 32 ? 32 : 64;
    const std::string hopper = "gemm_wgmma_" + std::to_string(tile) + "_normed";
    // Of more rows than 32 the down product may go to gemm_large_tile, which leaves norms alone.
    const char* last = rows <= 8 ? kBox : rows <= 32 ? hopper.c_str() : nullptr;
    layers(c, {rows, 2048, 2048, 8448, 4096, hopper.c_str(), last}, true);
    // Products of up to 16 rows with these weights are shared out evenly.
    const std::string even = "gemm_single_wave_" + std::to_string(tile) + "_normed";
    const char* const second = rows <= 16 ? even.c_str() : hopper.c_str();
    pair(c, rows, 4096, 4096, 6144, second);
    pair(c, rows, 1024, 8192, 6144, second), pair(c, rows, 1024, 8192, 6080, hopper.c_str());  // k cut in two
    pair(c, rows, 448, 4096, 6144, second), pair(c, rows, 448, 4096, 6080, hopper.c_str());    // k not cut
    if (rows <= 16) pair(c, rows, 448, 1536, 14336, second);
    if (rows == 8 || rows == 27) layers(c, {rows, 4096, 4096, 12288, 6144, even.c_str(), second}, true);
    chain(c, rows, 4096, false), left_alone(c, rows, true);
  }
}

// Weights of codes: the same fusions by Hopper's kernels (gemm/codes/sm90), of one row of large int4 weights by the
// portable ones.
void of_codes(Context& c) {
  for (const std::string format : {"wint8", "wint4", "wint4-32", "wint4-128", "block_wise_fp8"}) {
    const bool halves = format.starts_with("wint4");
    const auto of = [&](int64_t rows) {
      return Layer{rows, 2048, 1024, 3072, 2560, nullptr, nullptr, rows == 13, DType::kBF16, format.c_str()};
    };
    for (const int64_t rows : {1, 2, 8, 13, 27, 50, 64}) {
      const std::string tokens = rows <= 16 ? "16" : rows <= 32 ? "32" : "64";
      const std::string push = "codes_push_" + tokens + "_normed", wgmma = "codes_wgmma_" + tokens + "_normed";
      Layer small = of(rows);
      small.gated = small.last = push.c_str();
      layers(c, small, true);
      if (rows != 1 && rows != 27) continue;
      Layer large{rows, 2048, 4096, 6144, 6144, wgmma.c_str(), wgmma.c_str(), false, DType::kF32, format.c_str()};
      if (rows == 1 && halves) large.gated = "gemm_codes_8", large.last = "gemm_codes_small_8";
      layers(c, large, true);
    }
    layers(c, of(3), false), layers(c, of(9), false);
    again(c, of(3), 50), again(c, of(6), 50), again(c, of(40), 50);
  }
}

// Small shapes of the same; where Hopper's kernels are not emulated, the portable ones.
void of_few_codes(Context& c, bool emulated) {
  for (const char* format : {"wint8", "wint4-64", "block_wise_fp8"}) {
    const char *const codes = emulated ? "gemm_codes_small_8" : nullptr, *const more =
                                                                             emulated ? "gemm_codes_8" : nullptr;
    layers(c, {3, 192, 128, 256, 320, more, codes, true, DType::kBF16, format}, true);
    layers(c, {2, 256, 256, 64, 128, codes, codes, false, DType::kF32, format}, true);
  }
}

// The smallest weights that these kernels take.
void least_large(Context& c) {
  pair(c, 8, 64, 1536, 14336, "gemm_single_wave_8_normed"), pair(c, 13, 64, 1536, 14336, "gemm_single_wave_16_normed");
  layers(c, {27, 512, 704, 12288, 64, "gemm_single_wave_32_normed", nullptr}, true);
  layers(c, {2, 128, 4160, 128, 256, kKept, kKept}, true), pair(c, 2, 64, 1024, 16384, kResident);
  parted(c, 65, 4096, 4096, true);
}

}  // namespace

void test_norm_fusion(Context& c) {
  const bool emulated = c.label == "hopper";
  const char* const box = emulated ? kResident : kBox;
  if (emulated || c.smallest) {
    layers(c, {3, 1280, 128, 256, 320, box, box}, true);
    layers(c, {8, 512, 1024, 512, 64, box, box, true, DType::kF32}, true);
    layers(c, {1, 3328, 64, 128, 80, box, box}, true);
    layers(c, {2, 256, 1152, 64, 48, box, box}, true);
    layers(c, {2, 256, 3200, 64, 48, box, emulated ? kKept : kBox}, true);  // by the size of the GPU
    layers(c, {2, 128, 256, 2176, 64, box, emulated ? nullptr : kBox}, true);
    layers(c, {5, 512, 256, 128, 64, nullptr, nullptr}, false);
    chain(c, 2, 256, false), chain(c, 2, 256, true);
    left_alone(c, 2, false), left_alone(c, 2, true);
    of_few_codes(c, emulated);
    if (emulated) {
      for (const int64_t rows : {1, 3, 8}) pair(c, rows, 256, 1088, 256, kKept), pair(c, rows, 256, 2048, 272, kKept);
      return;
    }
    layers(c, {12, 256, 512, 512, 64, "gemm_splitk_dsmem_16_normed", "gemm_splitk_dsmem_16_normed"}, true);
    layers(c, {20, 512, 512, 256, 64, "gemm_splitk_dsmem_32_normed", "gemm_splitk_dsmem_32_normed"}, true);
    layers(c, {40, 256, 512, 512, 64, "gemm_splitk_dsmem_64_normed", "gemm_splitk_dsmem_64_normed"}, true);
    pair(c, 12, 32832, 512, 64, "gemm_splitk_dsmem_16_normed");  // gemm_streamk leaves
    pair(c, 12, 512, 256, 64, "gemm_wgmma_16_normed"), pair(c, 20, 512, 256, 64, "gemm_wgmma_32_normed");
    pair(c, 3, 256, 512, 32832, "gemm_wgmma_8_normed"), pair(c, 40, 512, 256, 64, "gemm_wgmma_64_normed");
    if (c.hopper() && !c.deterministic()) least_large(c);
    return;
  }
  for (const int64_t rows : {1, 2, 5, 8}) {
    // Of three rows and more the weights that gemm_splitk_dsmem takes go there.
    const auto few = [&](const char* kernel) { return rows < 3 ? kernel : "gemm_splitk_dsmem_16_normed"; };
    layers(c, {rows, 2048, 1024, 3072, 2560, few(kBox), few(kBox)}, true);
    layers(c, {rows, 896, 896, 4864, 1152, kBox, kBox, true}, true);
    layers(c, {rows, 4096, 2048, 256, 512, kBox, kBox, true, DType::kF32}, true);
    layers(c, {rows, 512, 4096, 256, 512, few(kBox), few(kBox)}, true);
    layers(c, {rows, 512, 4160, 256, 512, few(kKept), few(kKept)}, true);
    layers(c, {rows, 512, 4160, 128, 256, kKept, kKept}, true);
    chain(c, rows, 1024, false), chain(c, rows, 1024, true);
    left_alone(c, rows, false), left_alone(c, rows, true);
    pair(c, rows, 512, 2048, 5120, kBox);
    if (rows == 1) continue;  // the chain's
    // Of more blocks than find room at once.
    pair(c, rows, 512, 2048, 8192, kKept), pair(c, rows, 512, 1024, 16384, kResident);
  }
  wider(c), of_codes(c);
  // Rows of which the library has an algorithm, and others in turn.
  for (const int64_t rows : {256, 129, 200, 256}) parted(c, rows, 2048, 1024, true), parted(c, rows, 12288, 4096, true);
  for (const int64_t rows : {65, 100, 128}) parted(c, rows, 4096, 4096, true), parted(c, rows, 12288, 4096, true);
  parted(c, 100, 4096, 8192, true), parted(c, 100, 8192, 2048, true);  // two parts, eight
  parted(c, 100, 4096, 4096, true, false), parted(c, 64, 12288, 4096, false), parted(c, 100, 5120, 3584, false);
  parted(c, 512, 3072, 1024, true), parted(c, 512, 4096, 4096, false), parted(c, 256, 3072, 1024, true, false);
  parted(c, 256, 2040, 1024, false), parted(c, 128, 2048, 1024, false);
  parted(c, 600, 1032, 1032, false), parted(c, 600, 1032, 1032, false, false);
  for (const int64_t rows : {4, 30}) layers(c, {rows, 2048, 1024, 3072, 2560, nullptr, nullptr}, false);
  for (const int64_t rows : {8, 16, 31, 64}) again(c, {rows, 2048, 1024, 3072, 2560, nullptr, nullptr}, 100);
  for (const int64_t rows : {6, 16, 64}) again(c, {rows, 2048, 2048, 8448, 4096, nullptr, nullptr}, 50);
}

}  // namespace tern::cuda_test
