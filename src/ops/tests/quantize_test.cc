// Quantized weights: codes and scales against their definition, products against float64 over the codes.
#include "ops/quantize.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <numeric>

#include "ops/embedding.h"
#include "ops/linear.h"
#include "ops/tests/op_test_util.h"

namespace tern::ops {
namespace {

struct Kind {
  const char* name;
  int64_t rows, cols;  // of a scale; 0 columns: all
  float bound;         // of the codes
  bool floats;         // e4m3
  double rms;          // of the products' error
};
constexpr Kind kKinds[] = {{"wint8", 1, 0, 127, false, 2e-4},     {"wint4", 1, 0, 7, false, 2e-4},
                           {"wint4-32", 1, 32, 7, false, 3e-3},   {"wint4-64", 1, 64, 7, false, 3e-3},
                           {"wint4-128", 1, 128, 7, false, 3e-3}, {"block_wise_fp8", 128, 128, 448, true, 3e-3}};

const WeightFormat& format(const char* name) { return *find_weight_format(device::DeviceKind::kCpu, name); }

std::unique_ptr<device::Device> cpu() {
  auto d = device::make_cpu_device({1, false});
  EXPECT_TRUE(d.ok());
  return std::move(*d);
}

// The nearest number of e4m3, of two the one with an even code: by trying all.
double nearest_e4m3(float v) {
  double best = 0.0, distance = std::numeric_limits<double>::infinity();
  int kept = 0;
  for (int code = 0; code < 127; ++code) {
    const int e = code >> 3, m = code & 7;
    const double a = e == 0 ? std::ldexp(m, -9) : std::ldexp(8 + m, e - 10);
    const double d = std::fabs(a - std::fabs(static_cast<double>(v)));
    if (d < distance || (d == distance && code % 2 == 0 && kept % 2 != 0)) best = a, distance = d, kept = code;
  }
  return std::signbit(v) ? -best : best;
}

// Codes times scales by the definition, [n, k].
std::vector<double> oracle(const Kind& kind, const Values& w, int64_t n, int64_t k) {
  std::vector<double> out(static_cast<size_t>(n * k));
  const int64_t cols = kind.cols == 0 ? k : kind.cols;
  for (int64_t r0 = 0; r0 < n; r0 += kind.rows) {
    for (int64_t c0 = 0; c0 < k; c0 += cols) {
      const int64_t r1 = std::min(r0 + kind.rows, n), c1 = std::min(c0 + cols, k);
      float top = 0.0f;
      for (int64_t r = r0; r < r1; ++r)
        for (int64_t c = c0; c < c1; ++c) top = std::max(top, std::fabs(w.get(r, c)));
      const float scale = top / kind.bound;
      for (int64_t r = r0; r < r1; ++r) {
        for (int64_t c = c0; c < c1; ++c) {
          const float q = scale == 0.0f ? 0.0f : std::clamp(w.get(r, c) / scale, -kind.bound, kind.bound);
          const double code = kind.floats ? nearest_e4m3(q) : std::nearbyint(q);
          out[static_cast<size_t>(r * k + c)] = code * static_cast<double>(scale);
        }
      }
    }
  }
  return out;
}

// Random weights with a zero row, a zero group and a row of the smallest floats among them.
Values weights(DType type, int64_t n, int64_t k, uint32_t seed) {
  Values w = random_values(type, {n, k}, seed, 0.3f, 3);
  if (n < 4) return w;
  for (int64_t c = 0; c < k; ++c) w.set(0.0f, 1, c), w.set(c % 2 ? 3e-45f : -2e-45f, 3, c);
  for (int64_t c = 0; c < std::min<int64_t>(k, 128); ++c) w.set(0.0f, 2, c);
  return w;
}

std::vector<double> unpacked(const PackedWeight& w) {
  std::vector<int32_t> ids(static_cast<size_t>(w.n));
  std::iota(ids.begin(), ids.end(), 0);
  const Values id_values = int_values(ids);
  Values out(DType::kF32, {w.n, w.k});
  EXPECT_TRUE(w.format->gather_rows(w, id_values.view(), out.view(), {}).ok());
  std::vector<double> all;
  for (int64_t r = 0; r < w.n; ++r)
    for (int64_t c = 0; c < w.k; ++c) all.push_back(out.get(r, c));
  return all;
}

TEST(Quantize, CodesAndScalesAreThoseOfTheDefinition) {
  auto device = cpu();
  const std::pair<int64_t, int64_t> shapes[] = {{1, 1},     {1, 96},   {5, 33},    {64, 128},
                                                {130, 192}, {70, 257}, {200, 448}, {3, 1030}};
  for (const auto isa : isas_for_long_tests()) {
    const UseIsa use(isa);
    for (const Kind& kind : kKinds) {
      for (const auto& [n, k] : shapes) {
        for (const DType type : {DType::kBF16, DType::kF32}) {
          SCOPED_TRACE(std::string(kind.name) + " N=" + std::to_string(n) + " K=" + std::to_string(k));
          const Values w = weights(type, n, k, 11);
          auto packed = pack_weight(*device, format(kind.name), w.view());
          ASSERT_TRUE(packed.ok()) << packed.error().message;
          const std::vector<double> want = oracle(kind, w, n, k), got = unpacked(*packed);
          for (size_t i = 0; i < want.size(); ++i)
            ASSERT_EQ(static_cast<float>(got[i]), static_cast<float>(want[i])) << "value " << i;
        }
      }
    }
  }
}

void check_product(const Kind& kind, int64_t t, int64_t n, int64_t k, DType x_type) {
  SCOPED_TRACE(std::string(kind.name) + " T=" + std::to_string(t) + " N=" + std::to_string(n) +
               " K=" + std::to_string(k) + " x " + type_name(x_type));
  auto device = cpu();
  const Values w = weights(DType::kBF16, n, k, 21), x = random_values(x_type, {t, k}, 22, 1.0f, 5);
  const Values bias = random_values(DType::kF32, {n}, 23);
  auto packed = pack_weight(*device, format(kind.name), w.view());
  ASSERT_TRUE(packed.ok()) << packed.error().message;
  Values out(DType::kF32, {t, n}, 2);
  ASSERT_TRUE(linear({x.view(), &*packed, bias.view(), out.view()}, device->stream()).ok());
  const std::vector<double> codes = oracle(kind, w, n, k);
  double error = 0.0, size = 0.0;
  for (int64_t i = 0; i < t; ++i) {
    for (int64_t r = 0; r < n; ++r) {
      double sum = bias.get(r);
      for (int64_t c = 0; c < k; ++c) sum += static_cast<double>(x.get(i, c)) * codes[static_cast<size_t>(r * k + c)];
      error += std::pow(static_cast<double>(out.get(i, r)) - sum, 2), size += sum * sum;
    }
  }
  EXPECT_LE(std::sqrt(error / size), kind.rms);
  EXPECT_LE(std::sqrt(error / size), 2e-6) << "codes are exact in bfloat16, so only float32 sums round";
}

TEST(Quantize, ProductsMatchDoubleOverTheCodes) {
  constexpr int64_t kShapes[][3] = {{1, 64, 64},   {1, 1, 96},   {2, 65, 33},   {3, 130, 192}, {5, 64, 512},
                                    {6, 100, 100}, {7, 70, 448}, {97, 66, 258}, {13, 63, 1},   {1, 200, 1030}};
  for (const auto isa : isas_for_long_tests()) {
    const UseIsa use(isa);
    for (const Kind& kind : kKinds) {
      for (const auto& s : kShapes) {
        check_product(kind, s[0], s[1], s[2], DType::kBF16);
        check_product(kind, s[0], s[1], s[2], DType::kF32);
      }
    }
  }
}

TEST(Quantize, RowsDoNotDependOnTheBatch) {
  auto device = cpu();
  const int64_t n = 200, rows = 101;
  for (const auto isa : isas_for_long_tests()) {
    const UseIsa use(isa);
    for (const Kind& kind : kKinds) {
      for (const int64_t k : {770, 101}) {
        const Values w = weights(DType::kBF16, n, k, 31), x = random_values(DType::kBF16, {rows, k}, 32);
        auto packed = pack_weight(*device, format(kind.name), w.view());
        ASSERT_TRUE(packed.ok());
        Values alone(DType::kF32, {rows, n});
        for (int64_t t = 0; t < rows; ++t) {
          TensorView one = x.view(), out = alone.view();
          one.data = x.view().row_bytes(t), one.dim[0] = 1;
          out.data = alone.view().row_bytes(t), out.dim[0] = 1;
          ASSERT_TRUE(linear({one, &*packed, {}, out}, device->stream()).ok());
        }
        Threads pool(3);
        for (const int64_t count : {2, 3, 5, 6, 7, 13, 96, 97, 101}) {
          Values out(DType::kF32, {count, n});
          ASSERT_TRUE(linear({x.view().first(count), &*packed, {}, out.view()}, pool.stream()).ok());
          for (int64_t t = 0; t < count; ++t) ASSERT_EQ(out.row(t), alone.row(t)) << "row " << t << " of " << count;
        }
      }
    }
  }
}

TEST(Quantize, GroupedProductsAreEveryExpertsOwn) {
  auto device = cpu();
  const int64_t experts = 4, n = 130, k = 192;
  const Values offsets = int_values({0, 3, 3, 40, 41});
  for (const Kind& kind : kKinds) {
    std::vector<PackedWeight> packed;
    for (int64_t e = 0; e < experts; ++e) {
      auto one =
          pack_weight(*device, format(kind.name), weights(DType::kBF16, n, k, 40 + static_cast<uint32_t>(e)).view());
      ASSERT_TRUE(one.ok());
      packed.push_back(std::move(*one));
    }
    const Values x = random_values(DType::kBF16, {41, k}, 50);
    Values together(DType::kF32, {41, n}), apart(DType::kF32, {41, n});
    ASSERT_TRUE(grouped_linear({x.view(), offsets.view(), packed, together.view()}, device->stream()).ok());
    const int32_t starts[] = {0, 3, 3, 40, 41};
    for (size_t e = 0; e < 4; ++e) {
      TensorView in = x.view(), out = apart.view();
      in.data = in.row_bytes(starts[e]), out.data = out.row_bytes(starts[e]);
      in.dim[0] = out.dim[0] = starts[e + 1] - starts[e];
      ASSERT_TRUE(linear({in, &packed[e], {}, out}, device->stream()).ok());
    }
    for (int64_t t = 0; t < 41; ++t) EXPECT_EQ(together.row(t), apart.row(t)) << kind.name;
  }
}

// The bytes depend neither on the slices, nor on the instruction set, nor on the source's type.
TEST(Quantize, PacksTheSameBytesSliceBySlice) {
  auto device = cpu();
  const int64_t n = 300, k = 259;
  const Values w = weights(DType::kBF16, n, k, 61);
  Values wide(DType::kF32, {n, k});
  for (int64_t r = 0; r < n; ++r)
    for (int64_t c = 0; c < k; ++c) wide.set(w.get(r, c), r, c);
  for (const Kind& kind : kKinds) {
    const WeightFormat& f = format(kind.name);
    auto whole = pack_weight(*device, f, w.view());
    ASSERT_TRUE(whole.ok());
    const std::vector<char> want(whole->data.data(), whole->data.data() + f.packed_bytes(n, k));
    for (const auto isa : available_isas()) {
      const UseIsa use(isa);
      std::vector<char> sliced(want.size(), 'x');
      for (int64_t row = 0; row < n; row += f.row_granularity()) {
        TensorView slice = wide.view();
        slice.data = wide.view().row_bytes(row);
        slice.dim[0] = std::min(f.row_granularity(), n - row);
        ASSERT_TRUE(f.pack(slice, row, n, k, sliced.data()).ok());
      }
      EXPECT_EQ(sliced, want) << kind.name;
    }
  }
}

// A rank's columns of a matrix: scales of the whole, whose groups begin before the slice.
TEST(Quantize, ASliceOfColumnsKeepsTheScalesOfTheWhole) {
  auto device = cpu();
  const int64_t n = 130, k = 768, begin = 192, count = 192;
  const Values w = weights(DType::kBF16, n, k, 71), x = random_values(DType::kF32, {3, count}, 72);
  for (const Kind& kind : kKinds) {
    const WeightFormat& f = format(kind.name);
    const ScaleBlocks blocks = f.scale_blocks();
    const int64_t first = first_group_of(blocks, begin), groups = scale_groups(blocks, count, first);
    Values scales(DType::kF32, {n, groups});
    const int64_t cols = blocks.cols == 0 ? k : blocks.cols;
    for (int64_t r = 0; r < n; ++r) {
      const int64_t top = r / blocks.rows * blocks.rows;
      const TensorView rows =
          tensor2(w.view().row_bytes(top), DType::kBF16, std::min(blocks.rows, n - top), k, w.view().stride[0]);
      for (int64_t g = 0; g < groups; ++g) {
        const int64_t at = begin / cols * cols + g * cols;
        scales.set(scale_of(blocks, rows, at, std::min(at + cols, k)), r, g);
      }
    }
    auto data = device->allocate(f.packed_bytes(n, count));
    ASSERT_TRUE(data.ok());
    const Status status =
        f.pack_scaled({w.view().columns(begin, begin + count), scales.view(), 0, n, count, first}, data->data());
    ASSERT_TRUE(status.ok()) << status.error().message;
    PackedWeight packed;
    packed.format = &f, packed.n = n, packed.k = count, packed.first_group = first, packed.data = std::move(*data);
    Values out(DType::kF32, {3, n});
    ASSERT_TRUE(linear({x.view(), &packed, {}, out.view()}, device->stream()).ok());
    const std::vector<double> codes = oracle(kind, w, n, k);
    Worst worst;
    for (int64_t t = 0; t < 3; ++t) {
      for (int64_t r = 0; r < n; ++r) {
        double sum = 0.0;
        for (int64_t c = 0; c < count; ++c)
          sum += static_cast<double>(x.get(t, c)) * codes[static_cast<size_t>(r * k + begin + c)];
        worst.add(out.get(t, r), sum);
      }
    }
    EXPECT_LE(worst.relative(), tolerance(DType::kF32)) << kind.name;
  }
}

TEST(Quantize, ScalesMayBePowersOfTwo) {
  const std::pair<float, float> rows[] = {{0.0f, 0.0f},
                                          {1.0f, 1.0f},
                                          {1.0000001f, 2.0f},
                                          {0.75f, 1.0f},
                                          {3e38f / 448, 0x1p120f},
                                          {0x1p-149f, 0x1p-149f},
                                          {0x1.8p-148f, 0x1p-147f}};
  for (const auto& [scale, want] : rows) EXPECT_EQ(power_of_two_from(scale), want) << scale;
  const Values w = random_values(DType::kBF16, {128, 128}, 91);
  ScaleBlocks blocks = format("block_wise_fp8").scale_blocks();
  const float exact = scale_of(blocks, w.view(), 0, 128);
  blocks.powers_of_two = true;
  EXPECT_EQ(scale_of(blocks, w.view(), 0, 128), power_of_two_from(exact));
}

TEST(Quantize, BadInputIsRefused) {
  auto device = cpu();
  for (const Kind& kind : kKinds) {
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      for (const DType type : {DType::kBF16, DType::kF32}) {
        Values w = random_values(type, {64, 128}, 81);
        w.set(bad, 5, 77);
        auto packed = pack_weight(*device, format(kind.name), w.view());
        ASSERT_FALSE(packed.ok());
        EXPECT_EQ(packed.error().message, "pack: NaN and infinity cannot be quantized");
      }
    }
  }
  const WeightFormat& f = format("wint4-64");
  const Values w = random_values(DType::kF32, {64, 128}, 82), scales = random_values(DType::kF32, {64, 1}, 83);
  std::vector<char> dst(f.packed_bytes(64, 128));
  EXPECT_FALSE(f.pack_scaled({w.view(), scales.view(), 0, 64, 128, 0}, dst.data()).ok());
  EXPECT_FALSE(f.pack_scaled({w.view(), scales.view(), 0, 64, 128, 8}, dst.data()).ok());
  EXPECT_FALSE(format("bf16").pack_scaled({w.view(), scales.view(), 0, 64, 128, 0}, dst.data()).ok());
  EXPECT_EQ(find_weight_format(device::DeviceKind::kCpu, "wint4-16"), nullptr);
}

}  // namespace
}  // namespace tern::ops
