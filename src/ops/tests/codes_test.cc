// Weights that are codes already, with and without zero points: products against float64 over (code - zero) * scale.
#include <algorithm>
#include <bit>
#include <memory>
#include <numeric>

#include "kernels/cpu/kernel_table.h"
#include "ops/embedding.h"
#include "ops/linear.h"
#include "ops/quantize.h"
#include "ops/tests/op_test_util.h"

namespace tern::ops {
namespace {

struct CodedKind {
  const char* name;
  int bits;
  int64_t cols;  // of a scale; 0: all
  bool zeros;
};
constexpr CodedKind kCodedKinds[] = {
    {"wint8", 8, 0, false},       {"wint8-32", 8, 32, false},     {"wint8-64", 8, 64, false},
    {"wint4", 4, 0, false},       {"wint8-128", 8, 128, false},   {"wint4-32", 4, 32, false},
    {"wint8-zp", 8, 0, true},     {"wint8-32-zp", 8, 32, true},   {"wint8-64-zp", 8, 64, true},
    {"wint4-zp", 4, 0, true},     {"wint8-128-zp", 8, 128, true}, {"wint4-32-zp", 4, 32, true},
    {"wint4-64-zp", 4, 64, true}, {"wint4-128-zp", 4, 128, true}};

const WeightFormat& coded_format(const char* name) { return *find_weight_format(device::DeviceKind::kCpu, name); }

// Every code there is, the lowest too, scales and zero points of [n, k], and the values they stand for.
struct Coded {
  Values codes, scales, zeros;
  std::vector<double> values;
  int64_t n, k, first_group = 0;

  Coded(const CodedKind& kind, int64_t rows, int64_t cols, uint32_t seed)
      : codes(DType::kI8, {rows, cols}), n(rows), k(cols) {
    const int64_t group = kind.cols == 0 ? k : kind.cols, groups = (k + group - 1) / group;
    scales = random_values(DType::kF32, {n, groups}, seed, 0.02f);
    zeros = Values(DType::kF32, {n, groups});
    std::mt19937 random(seed);
    const int low = kind.bits == 8 ? -128 : -8, high = -low - 1;
    std::uniform_int_distribution<int> code(low, high), zero(low, high + 1);
    for (int64_t r = 0; r < n; ++r) {
      for (int64_t g = 0; g < groups; ++g) zeros.set(kind.zeros ? static_cast<float>(zero(random)) : 0.0f, r, g);
      for (int64_t c = 0; c < k; ++c) {
        const int q = c == 0 ? low : code(random);
        codes.at<int8_t>(r, c) = static_cast<int8_t>(q);
        values.push_back((q - static_cast<double>(zeros.get(r, c / group))) *
                         static_cast<double>(scales.get(r, c / group)));
      }
    }
  }
  ScaledRows rows(const CodedKind& kind) const {
    return {codes.view(), scales.view(), 0, n, k, 0, kind.zeros ? zeros.view() : TensorView{}};
  }
};

PackedWeight packed(device::Device& device, const CodedKind& kind, const Coded& coded) {
  const WeightFormat& f = coded_format(kind.name);
  PackedWeight w;
  w.format = &f, w.n = coded.n, w.k = coded.k;
  auto data = device.allocate(f.packed_bytes(coded.n, coded.k));
  EXPECT_TRUE(data.ok());
  w.data = std::move(*data);
  const Status status = f.pack_scaled(coded.rows(kind), w.data.data());
  EXPECT_TRUE(status.ok()) << status.error().message;
  return w;
}

TEST(Codes, ProductsAndRowsMatchDoubleForEveryInstructionSet) {
  auto device = device::make_cpu_device({1, false});
  ASSERT_TRUE(device.ok());
  constexpr int64_t kShapes[][3] = {{1, 64, 64}, {1, 1, 96}, {6, 100, 100}, {7, 70, 192}, {97, 66, 448}, {2, 130, 258}};
  for (const auto isa : isas_for_long_tests()) {
    const UseIsa use(isa);
    for (const CodedKind& kind : kCodedKinds) {
      for (const auto& [t, n, k] : kShapes) {
        SCOPED_TRACE(std::string(kind.name) + " T=" + std::to_string(t) + " K=" + std::to_string(k));
        const Coded coded(kind, n, k, 7);
        const PackedWeight w = packed(**device, kind, coded);
        std::vector<int32_t> ids(static_cast<size_t>(n));
        std::iota(ids.begin(), ids.end(), 0);
        Values rows(DType::kF32, {n, k});
        ASSERT_TRUE(w.format->gather_rows(w, int_values(ids).view(), rows.view(), {}).ok());
        for (int64_t r = 0; r < n; ++r)
          for (int64_t c = 0; c < k; ++c)
            ASSERT_EQ(rows.get(r, c), static_cast<float>(coded.values[static_cast<size_t>(r * k + c)]));
        for (const DType type : {DType::kBF16, DType::kF32}) {
          const Values x = random_values(type, {t, k}, 9, 1.0f, 5);
          Values out(DType::kF32, {t, n}, 2), one(DType::kF32, {1, n});
          ASSERT_TRUE(linear({x.view(), &w, {}, out.view()}, (*device)->stream()).ok());
          double error = 0.0, size = 0.0;
          for (int64_t i = 0; i < t; ++i) {
            for (int64_t r = 0; r < n; ++r) {
              double sum = 0.0;
              for (int64_t c = 0; c < k; ++c)
                sum += static_cast<double>(x.get(i, c)) * coded.values[static_cast<size_t>(r * k + c)];
              error += std::pow(static_cast<double>(out.get(i, r)) - sum, 2), size += sum * sum;
            }
          }
          EXPECT_LE(std::sqrt(error / size), 3e-6);
          ASSERT_TRUE(linear({x.view().first(1), &w, {}, one.view()}, (*device)->stream()).ok());
          EXPECT_EQ(one.row(0), out.row(0)) << "a row depends on the batch";
        }
      }
    }
  }
}

TEST(Codes, Float8CodesAreTakenAsTheyAre) {
  auto device = device::make_cpu_device({1, false});
  ASSERT_TRUE(device.ok());
  for (const char* name : {"block_wise_fp8", "channel_wise_fp8"}) {
    const WeightFormat& f = coded_format(name);
    const int64_t n = 70, k = 192, groups = scale_groups(f.scale_blocks(), k, 0);
    Values codes(DType::kF8E4M3, {n, k}), scales = random_values(DType::kF32, {n, groups}, 3, 0.01f);
    for (int64_t r = 0; r < n; ++r)
      for (int64_t c = 0; c < k; ++c)
        codes.at<uint8_t>(r, c) = static_cast<uint8_t>((r * 31 + c) % 127 | (c % 2 == 0 ? 0x80 : 0));
    PackedWeight w;
    w.format = &f, w.n = n, w.k = k;
    w.data = std::move(*(*device)->allocate(f.packed_bytes(n, k)));
    ASSERT_TRUE(f.pack_scaled({codes.view(), scales.view(), 0, n, k, 0, {}}, w.data.data()).ok());
    Values row(DType::kF32, {1, k});
    ASSERT_TRUE(f.gather_rows(w, int_values({69}).view(), row.view(), {}).ok());
    for (int64_t c = 0; c < k; ++c) {
      const int code = codes.at<uint8_t>(69, c), e = code >> 3 & 15, m = code & 7;
      const double a = e == 0 ? std::ldexp(m, -9) : std::ldexp(8 + m, e - 10);
      const auto scale = static_cast<double>(scales.get(69, groups == 1 ? 0 : c / 128));
      EXPECT_EQ(row.get(0, c), static_cast<float>((code >= 128 ? -a : a) * scale));
    }
  }
}

// Codes of every bfloat16 number, of floats between them, and of rows that end anywhere.
TEST(Codes, EncodersGiveTheSameBytesWithEveryInstructionSet) {
  std::vector<uint16_t> narrow;
  std::vector<float> wide;
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    if ((bits & 0x7f80) == 0x7f80) continue;  // what is no finite number does not come here
    narrow.push_back(static_cast<uint16_t>(bits));
    wide.push_back(std::bit_cast<float>(bits << 16 | (bits * 40503 & 0xffff)));
  }
  const auto codes_of = [&](const void* x, int bf16, float scale, bool floats, int64_t n) {
    std::vector<uint8_t> codes(static_cast<size_t>(n) + 1, 0x5a);
    const auto& t = kernels::kernel_table().codes;
    if (floats) {
      t.encode_e4m3(x, bf16, scale, codes.data(), n);
    } else {
      t.encode_int(x, bf16, scale, 127.0f, codes.data(), n);
    }
    EXPECT_EQ(codes.back(), 0x5a) << "behind the row";
    return codes;
  };
  for (const bool floats : {false, true}) {
    for (const float scale : {1.0f, 0.0123f, 3e38f, 1e-30f, 1e-44f, 0.0f}) {
      for (const int bf16 : {0, 1}) {
        const void* x = bf16 != 0 ? static_cast<const void*>(narrow.data()) : wide.data();
        for (const int64_t n : {int64_t{1}, int64_t{7}, int64_t{8}, int64_t{21}, static_cast<int64_t>(wide.size())}) {
          const auto of = [&](Isa isa) {
            const UseIsa use(isa);
            return codes_of(x, bf16, scale, floats, n);
          };
          const std::vector<uint8_t> want = of(available_isas().front());
          for (const Isa isa : available_isas())
            EXPECT_TRUE(of(isa) == want) << "scale " << scale << ", " << n << " values";
        }
      }
    }
  }
}

TEST(Codes, WhatDoesNotFitTheFormatIsRefused) {
  const CodedKind plain{"wint4-64", 4, 64, false}, zeros{"wint4-64-zp", 4, 64, true};
  const Coded coded(zeros, 64, 128, 5);
  std::vector<char> dst(coded_format("wint4-64-zp").packed_bytes(64, 128));
  EXPECT_TRUE(coded_format("wint4-64-zp").pack_scaled(coded.rows(zeros), dst.data()).ok());
  EXPECT_FALSE(coded_format("wint4-64-zp").pack_scaled(coded.rows(plain), dst.data()).ok());
  EXPECT_FALSE(coded_format("wint4-64").pack_scaled(coded.rows(zeros), dst.data()).ok());
  EXPECT_FALSE(coded_format("channel_wise_fp8").pack_scaled(coded.rows(plain), dst.data()).ok());
  const Values values = random_values(DType::kF32, {64, 128}, 6);
  EXPECT_FALSE(coded_format("wint4-64-zp").pack(values.view(), 0, 64, 128, dst.data()).ok());
}

}  // namespace
}  // namespace tern::ops
