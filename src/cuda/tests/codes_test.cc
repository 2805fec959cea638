// Weights that are codes: the bytes of the CPU's quantizer, and products against float64 over codes and scales.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <numeric>

#include "base/bf16.h"
#include "cuda/tests/products.h"
#include "ops/moe.h"
#include "ops/quantize.h"

namespace tern::cuda_test {
namespace {

struct Kind {
  const char* name;
  double rms;         // of the error of float32 results
  bool wgmma = true;  // whether Hopper has a kernel of its own for it
};
constexpr Kind kKinds[] = {{"wint8", 2e-4},
                           {"wint4", 2e-4},
                           {"wint4-32", 3e-3},
                           {"wint4-64", 3e-3},
                           {"wint4-128", 3e-3},
                           {"wint8-32", 3e-3, false},
                           {"channel_wise_fp8", 2e-4, false},
                           {"block_wise_fp8", 3e-3}};

// Codes times scales, [n, k], as the CPU has them.
std::vector<float> values_of(Context& c, const ops::PackedWeight& w) {
  std::vector<int32_t> ids(static_cast<size_t>(w.n));
  std::iota(ids.begin(), ids.end(), 0);
  std::vector<float> all(static_cast<size_t>(w.n * w.k));
  const Status s = w.format->gather_rows(w, tensor1(ids.data(), DType::kI32, w.n),
                                         tensor2(all.data(), DType::kF32, w.n, w.k), c.cpu);
  if (!s.ok()) c.report(false, "rows of codes", s.error().message);
  return all;
}

void same_bytes(Context& c, const std::string& name, const ops::PackedWeight& cpu, const ops::PackedWeight& gpu) {
  Mirror ids(c, DType::kI32, {cpu.n}), out(c, DType::kF32, {cpu.n, cpu.k});
  std::vector<int32_t> all(static_cast<size_t>(cpu.n));
  std::iota(all.begin(), all.end(), 0);
  ids.fill(all);
  if (c.both(name, cpu.format->gather_rows(cpu, ids.cpu(), out.cpu(), c.cpu),
             gpu.format->gather_rows(gpu, ids.gpu(), out.gpu(), c.gpu)))
    compare(c, name + ": codes and scales", out, out.host(), 0);
}

// sum_k x[r, k] w[i, k] in float64 for rows [begin, end) of x: [r - begin, n]. All threads: of large products this
// takes longer than everything else.
std::vector<double> sums_of(Context& c, const Mirror& x, const std::vector<float>& w, int64_t begin, int64_t end,
                            int64_t n, int64_t k) {
  constexpr int64_t kChains = 4;
  std::vector<double> rows(static_cast<size_t>((end - begin) * k)), sums(static_cast<size_t>((end - begin) * n));
  for (int64_t r = begin; r < end; ++r) {
    const char* from = x.cpu().row_bytes(r);
    for (int64_t i = 0; i < k; ++i) {
      rows[static_cast<size_t>((r - begin) * k + i)] =
          x.type() == DType::kF32 ? static_cast<double>(reinterpret_cast<const float*>(from)[i])
                                  : static_cast<double>(to_float(reinterpret_cast<const bf16*>(from)[i]));
    }
  }
  c.pool->parallel(static_cast<int>(end - begin), [&](int r) {
    const double* row = rows.data() + r * k;
    for (int64_t j = 0; j < n; ++j) {
      const float* weight = w.data() + j * k;
      double sum[kChains] = {};
      int64_t i = 0;
      for (; i + kChains <= k; i += kChains)
        for (int64_t at = 0; at < kChains; ++at) sum[at] += row[i + at] * static_cast<double>(weight[i + at]);
      for (; i < k; ++i) sum[0] += row[i] * static_cast<double>(weight[i]);
      sums[static_cast<size_t>(r * n + j)] = (sum[0] + sum[1]) + (sum[2] + sum[3]);
    }
  });
  return sums;
}

// The rms of the error over that of the results.
class Error {
 public:
  void add(double got, double want) { error_ += (got - want) * (got - want), size_ += want * want; }
  void report(Context& c, const std::string& name, double most) const {
    const double rms = size_ > 0 ? std::sqrt(error_ / size_) : error_;
    char text[80];
    std::snprintf(text, sizeof text, "rms %.3g (at most %.2g)", rms, most);
    c.report(std::isfinite(rms) && rms <= most, name, text);
  }

 private:
  double error_ = 0, size_ = 0;
};

double silu_of(double v) { return v / (1.0 + std::exp(-v)); }

struct Case {
  int64_t rows, n, k;
  DType x = DType::kBF16, out = DType::kF32;
  bool gated = false, bias = false;
  int64_t pad = 0;  // of rows of x
  const char* kernel = nullptr;
};

void product(Context& c, const Kind& kind, const Case& t) {
  if (!c.own_turn()) return;
  Weights w = pack(c, kind.name, DType::kBF16, 1, t.n, t.k, 11);
  if (w.gpu.empty()) return;
  const std::string name =
      title(std::string(t.gated ? "gated_linear " : "linear ") + kind.name, t.x, {t.rows, t.n, t.k});
  if (!c.device->info().name.starts_with("emulated")) (void)c.device->load_kernels();  // memory for widened weights
  same_bytes(c, name, w.cpu[0], w.gpu[0]);
  const std::vector<float> wide = values_of(c, w.cpu[0]);
  const int64_t cols = t.gated ? t.n / 2 : t.n;
  Mirror x(c, t.x, {t.rows, t.k}, t.pad), b(c, DType::kF32, {t.n}),
      between(c, t.gated ? DType::kF32 : t.out, {t.rows, t.n}), out(c, t.out, {t.rows, cols}, 16);
  x.random(12), b.random(13);
  out.copy_to_device();  // initcheck does not see what cuBLASLt writes where its kernels are left out
  const ops::LinearParams p{x.gpu(), &w.gpu[0], t.bias ? b.gpu() : TensorView{}, t.gated ? between.gpu() : out.gpu()};
  if (!c.both(name, {}, t.gated ? ops::gated_linear(p, out.gpu(), c.gpu) : ops::linear(p, c.gpu))) return;
  if (t.kernel != nullptr) c.expect_kernel(name, t.kernel);
  const std::vector<char> got = out.copy_to_host();
  const auto* bias = reinterpret_cast<const float*>(b.host());
  const std::vector<double> sums = sums_of(c, x, wide, 0, t.rows, t.n, t.k);
  Error error;
  for (int64_t r = 0; r < t.rows; ++r) {
    for (int64_t n = 0; n < cols; ++n) {
      const auto sum = [&](int64_t i) {
        return sums[static_cast<size_t>(r * t.n + i)] + (t.bias ? static_cast<double>(bias[i]) : 0.0);
      };
      const double want = t.gated ? silu_of(sum(n)) * sum(n + cols) : sum(n);
      error.add(element(got, t.out, static_cast<size_t>(r * out.cpu().stride[0] + n)), want);
    }
  }
  error.report(c, name, t.out == DType::kBF16 ? 3e-3 : kind.rms);
}

// Experts with many rows, few and none; rows of the last ones belong to nobody.
void experts(Context& c, const Kind& kind, int count, int64_t rows, int64_t n, int64_t k, bool gated) {
  if (!c.own_turn()) return;
  Weights w = pack(c, kind.name, DType::kBF16, count, n, k, 31);
  if (w.gpu.empty()) return;
  const int64_t cols = gated ? n / 2 : n;
  Mirror x(c, DType::kBF16, {rows, k}), between(c, DType::kF32, {rows, n}), out(c, DType::kF32, {rows, cols}),
      offsets(c, DType::kI32, {count + 1});
  x.random(32);
  std::vector<int32_t> at{0};
  for (int e = 0; e < count; ++e) {
    const int64_t share = e % 3 == 1 ? 0 : e == 0 ? rows / 2 : rows / (2 * count);
    at.push_back(static_cast<int32_t>(std::min<int64_t>(rows, at.back() + share)));
  }
  offsets.fill(at);
  const std::string name = title(std::string(gated ? "grouped_gated_linear " : "grouped_linear ") + kind.name,
                                 DType::kBF16, {count, rows, n, k});
  const ops::GroupedLinearParams p{x.gpu(), offsets.gpu(), w.gpu, gated ? between.gpu() : out.gpu()};
  if (!c.both(name, {}, gated ? ops::grouped_gated_linear(p, out.gpu(), c.gpu) : ops::grouped_linear(p, c.gpu))) return;
  const std::vector<char> got = out.copy_to_host();
  Error error;
  for (int e = 0; e < count; ++e) {
    const std::vector<float> wide = values_of(c, w.cpu[static_cast<size_t>(e)]);
    const int64_t begin = at[static_cast<size_t>(e)], end = at[static_cast<size_t>(e) + 1];
    const std::vector<double> sums = sums_of(c, x, wide, begin, end, n, k);
    for (int64_t r = begin; r < end; ++r) {
      for (int64_t i = 0; i < cols; ++i) {
        const double* row = sums.data() + (r - begin) * n;
        error.add(element(got, DType::kF32, static_cast<size_t>(r * cols + i)),
                  gated ? silu_of(row[i]) * row[i + cols] : row[i]);
      }
    }
  }
  error.report(c, name, kind.rms);
}

// Codes that are there already, packed by both sides; zero points where the format has them.
void stored(Context& c, const char* format, int64_t n, int64_t k, int64_t first_group) {
  static auto host = device::make_cpu_device({});
  const ops::ScaleBlocks blocks = ops::find_weight_format(device::DeviceKind::kCpu, format)->scale_blocks();
  const bool floats = std::strstr(format, "fp8") != nullptr;
  const int half = std::strstr(format, "wint4") != nullptr ? 8 : 128;
  const int64_t groups = ops::scale_groups(blocks, k, first_group);
  std::vector<int8_t> codes;
  std::vector<float> scales, zeros;
  for (int64_t i = 0; i < n * k; ++i)
    codes.push_back(static_cast<int8_t>(floats ? i * 37 % 255 - 127 : i * 37 % (2 * half) - half));
  for (int64_t i = 0; i < n * groups; ++i) {
    scales.push_back(0.001f * static_cast<float>(1 + i % 7));
    zeros.push_back(static_cast<float>(i * 5 % half - half / 2));
  }
  const TensorView source = tensor2(codes.data(), floats ? DType::kF8E4M3 : DType::kI8, n, k);
  const TensorView scale = tensor2(scales.data(), DType::kF32, n, groups);
  const TensorView zero = blocks.zeros ? tensor2(zeros.data(), DType::kF32, n, groups) : TensorView{};
  ops::PackedWeight both[2];
  for (ops::PackedWeight& w : both) {
    const auto kind = &w == both ? device::DeviceKind::kCpu : device::DeviceKind::kCuda;
    device::Device& owner = &w == both ? **host : *c.device;
    w.format = ops::find_weight_format(kind, format), w.n = n, w.k = k, w.first_group = first_group;
    auto memory = owner.allocate(w.format->packed_bytes(n, k));
    w.data = std::move(memory).value();
    const Status s = w.format->pack_scaled({source, scale, 0, n, k, first_group, zero}, w.data.data());
    if (!s.ok()) return c.report(false, std::string("stored codes ") + format, s.error().message);
  }
  same_bytes(c, std::string("stored codes ") + format, both[0], both[1]);
  const std::vector<float> wide = values_of(c, both[0]);
  for (const int64_t rows : {1, 7, 70}) {
    Mirror x(c, DType::kBF16, {rows, k}), out(c, DType::kF32, {rows, n});
    x.random(42);
    const std::string name = title(std::string("stored codes ") + format, DType::kBF16, {rows, n, k});
    if (!c.both(name, {}, ops::linear({x.gpu(), &both[1], {}, out.gpu()}, c.gpu))) return;
    const std::vector<char> got = out.copy_to_host();
    const std::vector<double> sums = sums_of(c, x, wide, 0, rows, n, k);
    Error error;
    for (size_t i = 0; i < sums.size(); ++i) error.add(element(got, DType::kF32, i), sums[i]);
    error.report(c, name, 2e-4);
  }
}

// Deterministic mode: a row's bits are the same in any company.
void company(Context& c, const Kind& kind, bool gated) {
  constexpr int64_t kRows = 70, kN = 192, kK = 448;
  Weights w = pack(c, kind.name, DType::kBF16, 1, kN, kK, 51);
  if (w.gpu.empty()) return;
  const int64_t cols = gated ? kN / 2 : kN;
  Mirror x(c, DType::kBF16, {kRows, kK}), all(c, DType::kF32, {kRows, cols}), some(c, DType::kF32, {kRows, cols}),
      between(c, DType::kF32, {kRows, kN});
  x.random(52);
  const auto run = [&](int64_t begin, int64_t count, const Mirror& to) {
    TensorView from = x.gpu(), out = to.gpu(), room = gated ? between.gpu() : TensorView{};
    from.data = from.row_bytes(begin), out.data = out.row_bytes(begin), from.dim[0] = out.dim[0] = count;
    if (gated) room.dim[0] = count;
    const ops::LinearParams p{from, &w.gpu[0], {}, gated ? room : out};
    return gated ? ops::gated_linear(p, out, c.gpu) : ops::linear(p, c.gpu);
  };
  Status s = run(0, kRows, all);
  for (int64_t begin = 0, count; s.ok() && begin < kRows; begin += count) {
    count = std::min<int64_t>(begin < 5 ? 1 : begin < 20 ? 8 : 50, kRows - begin);
    s = run(begin, count, some);
  }
  const std::string name = title(std::string("the same bits in any company ") + kind.name, DType::kBF16, {kN, kK});
  if (!c.both(name, {}, s)) return;
  const std::vector<char> want = all.copy_to_host();
  compare(c, name, some, want.data(), 0);
}

// What Hopper's own kernels have tiles, parts of k, gates and ragged ends for.
void wgmma_products(Context& c, const Kind& kind) {
  constexpr DType b = DType::kBF16, f = DType::kF32;
  // Small weights whose k is cut.
  for (const int64_t rows : {1, 5, 16}) product(c, kind, {rows, 200, 2048, b, f, false, rows == 5, 0, "codes_push_16"});
  product(c, kind, {11, 352, 1024, b, f, true, true, 8, "codes_push_16"});
  product(c, kind, {20, 96, 4096, b, b, true, false, 0, "codes_push_32"});
  product(c, kind, {27, 1000, 584, b, b, false, true, 0, "codes_push_32"});
  product(c, kind, {40, 1024, 1024, b, f, false, false, 0, "codes_push_64"});
  product(c, kind, {64, 480, 2112, b, f, true, true, 0, "codes_push_64"});
  // Tiles of 64 weight rows.
  product(c, kind, {16, 200, 192, b, f, false, true, 8, "codes_wgmma_16"});
  product(c, kind, {29, 6200, 1000, b, f, false, false, 0, "codes_wgmma_32"});
  product(c, kind, {64, 480, 712, b, f, true, true, 0, "codes_wgmma_64"});
  // Tiles of 128, of 128 tokens and of fewer.
  for (const int64_t rows : {65, 100, 256})
    product(c, kind, {rows, 1000, 584, b, f, false, true, 0, "codes_wgmma_128"});
  product(c, kind, {130, 352, 320, b, b, true, false, 8, "codes_wgmma_128"});
  product(c, kind, {70, 264, 4096, b, f, false, false, 0, "codes_wgmma_128"});
  product(c, kind, {7, 4232, 4040, b, f, false, true, 0, "codes_wgmma_16"});
  product(c, kind, {10, 14336, 1280, b, f, false, false, 0, "codes_wgmma_16"});  // seven stripes a tile
  product(c, kind, {6, 24544, 896, b, f, true, false, 0, "codes_wgmma_16"});     // three of gate and of up
  product(c, kind, {30, 8224, 2112, b, f, true, false, 0, "codes_wgmma_32"});
  product(c, kind, {50, 1544, 11264, b, f, false, false, 0, "codes_wgmma_64"});
}

}  // namespace

void test_codes(Context& c) {
  const bool emulated = c.device->info().name.starts_with("emulated"), deterministic = c.deterministic();
  constexpr DType b = DType::kBF16, f = DType::kF32;
  // Enough weight rows for the tiles of large weights.
  const int64_t large = emulated ? 400 : 9008;
  for (const Kind& kind : kKinds) {
    const bool wgmma = kind.wgmma && c.hopper() && !emulated && !deterministic;
    const auto first = [&](const char* portable) { return deterministic ? "gemm_codes_fixed_8" : portable; };
    if (wgmma && !c.smallest) wgmma_products(c, kind);
    if (wgmma && c.smallest)
      for (const int64_t rows : {5, 20, 40}) product(c, kind, {rows, 64, 512, b, f, rows == 20, true});
    const bool all = !emulated || &kind == &kKinds[0] || &kind == &kKinds[7];  // tiles are the same code in all of them
    for (const int64_t k : {int64_t{96}, int64_t{192}, int64_t{448}, int64_t{1024}}) {
      product(c, kind,
              {1, 33, k, b, f, false, k == 192, 0, first(wgmma && k == 1024 ? "codes_push_16" : "gemm_codes_small_8")});
      product(c, kind, {3, 96, k, b, f, true, k == 448, 8});
    }
    for (const int64_t rows : {9, 16, 17, 33, 64, 65, 100})
      if (all || rows == 17 || rows == 65) product(c, kind, {rows, 136, 192, b, rows == 33 ? b : f, false, rows == 64});
    product(c, kind, {8, large, 192, b, f, false, true, 0, first(wgmma ? "codes_wgmma_16" : "gemm_codes_8")});
    if (all && c.smallest)
      for (const int64_t rows : {12, 30}) product(c, kind, {rows, large, 96, b, f, false, true});
    if (all && !c.smallest)
      for (const int64_t rows : {12, 30, 50, 130}) product(c, kind, {rows, large, 192, b, f, rows == 30, true});
    product(c, kind, {20, 128, 100, b, b, true, false, 4});                       // k fills no piece of 16 bytes
    product(c, kind, {20, 128, 100, b, b, false, true, 0, "gemm_codes_simple"});  // nor do rows
    product(c, kind, {2, 40, 75, f, f, false, true, 0, "gemm_codes_simple"});
    experts(c, kind, 9, 40, 96, 192, false), experts(c, kind, 5, 64, 128, 96, true),
        experts(c, kind, 3, 70, 33, 448, false);
    if (deterministic) company(c, kind, false), company(c, kind, true);
  }
  // A rank's columns, whose first group is half of one; codes of files.
  stored(c, "wint4-128", 40, 192, 64), stored(c, "block_wise_fp8", 130, 320, 64);
  for (const char* format : {"wint8", "wint4", "wint8-128", "channel_wise_fp8", "wint8-zp", "wint4-zp", "wint8-32-zp",
                             "wint8-64-zp", "wint4-32-zp", "wint4-64-zp", "wint4-128-zp"})
    stored(c, format, 66, 200, 0);
}

// Many rows, whose weights are widened where cuBLASLt is there: results in either type, k that fills no block, a bias.
void test_widened(Context& c) {
  for (const Kind& kind : kKinds) {
    for (const DType out : {DType::kF32, DType::kBF16}) {
      const bool first = out == DType::kF32;
      if (c.smallest) {
        product(c, kind, {257, 40, 104, DType::kBF16, out, false, first});
      } else {
        product(c, kind, {300, 1000, 584, DType::kBF16, out, false, first});
        product(c, kind, {520, 512, 1024, DType::kBF16, out, !first, false});
      }
    }
  }
}

}  // namespace tern::cuda_test
