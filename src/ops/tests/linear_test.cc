#include "ops/linear.h"
#include "ops/embedding.h"

#include <memory>

#include "ops/tests/op_test_util.h"

namespace tern::ops {
namespace {

std::unique_ptr<device::Device> cpu() {
  auto d = device::make_cpu_device({1, false});
  EXPECT_TRUE(d.ok());
  return std::move(*d);
}

const WeightFormat& format(const char* name) { return *find_weight_format(device::DeviceKind::kCpu, name); }

struct Shape {
  int64_t t, n, k;
};

void check_linear(const Shape& s, const char* name, DType x_type, DType out_type, DType source_type, bool bias) {
  SCOPED_TRACE(std::string(name) + " x " + type_name(x_type) + " T=" + std::to_string(s.t) +
               " N=" + std::to_string(s.n) + " K=" + std::to_string(s.k));
  auto device = cpu();
  const Values w = random_values(source_type, {s.n, s.k}, 1, 0.5f, 3),
               x = random_values(x_type, {s.t, s.k}, 2, 1.0f, 5);
  const Values b = random_values(DType::kF32, {s.n}, 3);
  Values out(out_type, {s.t, s.n}, 2);
  auto packed = pack_weight(*device, format(name), w.view());
  ASSERT_TRUE(packed.ok()) << packed.error().message;
  const Status status = linear({x.view(), &*packed, bias ? b.view() : TensorView{}, out.view()}, device->stream());
  ASSERT_TRUE(status.ok()) << status.error().message;
  const bool rounds = std::string(name) == "bf16";
  Worst worst;
  for (int64_t t = 0; t < s.t; ++t) {
    for (int64_t n = 0; n < s.n; ++n) {
      double sum = bias ? b.get(n) : 0.0;
      for (int64_t k = 0; k < s.k; ++k) {
        const float weight = rounds ? to_float(to_bf16(w.get(n, k))) : w.get(n, k);
        sum += static_cast<double>(x.get(t, k)) * static_cast<double>(weight);
      }
      worst.add(out.get(t, n), sum);
    }
  }
  EXPECT_LE(worst.relative(), tolerance(out_type));
}

TEST(Linear, MatchesDoubleForEveryInstructionSet) {
  const Shape shapes[] = {{1, 64, 64},   {1, 1, 2},     {2, 65, 33}, {3, 130, 257}, {5, 64, 512},  {6, 100, 300},
                          {7, 192, 256}, {97, 70, 258}, {13, 63, 1}, {200, 80, 96}, {1, 200, 1030}};
  for (const auto isa : isas_for_long_tests()) {
    const UseIsa use(isa);
    for (const Shape& s : shapes) {
      check_linear(s, "bf16", DType::kBF16, DType::kBF16, DType::kBF16, true);
      check_linear(s, "bf16", DType::kBF16, DType::kF32, DType::kF32, false);
      check_linear(s, "bf16", DType::kF32, DType::kF32, DType::kBF16, true);
      check_linear(s, "f32", DType::kF32, DType::kF32, DType::kF32, true);
      check_linear(s, "f32", DType::kBF16, DType::kF32, DType::kBF16, false);
    }
  }
}

// The bits of a row depend neither on the rows around it nor on the threads.
TEST(Linear, RowsDoNotDependOnTheBatch) {
  auto device = cpu();
  const int64_t n = 200, k = 770, rows = 230;
  for (const auto isa : isas_for_long_tests()) {
    const UseIsa use(isa);
    for (const DType type : {DType::kBF16, DType::kF32}) {
      const Values w = random_values(type, {n, k}, 4), x = random_values(type, {rows, k}, 5);
      auto packed = pack_weight(*device, format(type == DType::kBF16 ? "bf16" : "f32"), w.view());
      ASSERT_TRUE(packed.ok());
      Values alone(DType::kF32, {rows, n});
      for (int64_t t = 0; t < rows; ++t) {
        TensorView one = x.view(), out = alone.view();
        one.data = x.view().row_bytes(t), one.dim[0] = 1;
        out.data = alone.view().row_bytes(t), out.dim[0] = 1;
        ASSERT_TRUE(linear({one, &*packed, {}, out}, device->stream()).ok());
      }
      for (const int threads : {1, 2, 3, 4}) {
        Threads pool(threads);
        for (const int64_t count : {2, 3, 4, 5, 6, 7, 8, 13, 96, 97, 230}) {
          Values out(DType::kF32, {count, n});
          ASSERT_TRUE(linear({x.view().first(count), &*packed, {}, out.view()}, pool.stream()).ok());
          for (int64_t t = 0; t < count; ++t) ASSERT_EQ(out.row(t), alone.row(t)) << "row " << t << " of " << count;
        }
      }
    }
  }
}

TEST(Linear, PacksSliceBySlice) {
  auto device = cpu();
  const int64_t n = 300, k = 129;
  for (const char* name : {"bf16", "f32"}) {
    const Values w = random_values(DType::kF32, {n, k}, 6);
    const WeightFormat& f = format(name);
    auto whole = pack_weight(*device, f, w.view());
    ASSERT_TRUE(whole.ok());
    std::vector<char> sliced(f.packed_bytes(n, k), 'x');
    for (int64_t row = 0; row < n; row += f.row_granularity()) {
      TensorView slice = w.view();
      slice.data = w.view().row_bytes(row);
      slice.dim[0] = std::min(f.row_granularity(), n - row);
      ASSERT_TRUE(f.pack(slice, row, n, k, sliced.data()).ok());
    }
    EXPECT_EQ(std::memcmp(sliced.data(), whole->data.data(), sliced.size()), 0);
    // Every instruction set packs the same bytes.
    for (const auto isa : available_isas()) {
      const UseIsa use(isa);
      for (const DType type : {DType::kF32, DType::kBF16}) {
        const Values source = random_values(type, {128, 64}, 7);
        std::vector<char> a(f.packed_bytes(128, 64)), b(a.size());
        ASSERT_TRUE(f.pack(source.view(), 0, 128, 64, a.data()).ok());
        {
          const UseIsa scalar(Isa::kScalar);
          ASSERT_TRUE(f.pack(source.view(), 0, 128, 64, b.data()).ok());
        }
        EXPECT_EQ(a, b);
      }
    }
  }
}

TEST(Linear, EmptyAndBadShapes) {
  auto device = cpu();
  const Values w = random_values(DType::kBF16, {64, 32}, 8);
  auto packed = pack_weight(*device, format("bf16"), w.view());
  ASSERT_TRUE(packed.ok());
  Values x(DType::kBF16, {4, 32}), out(DType::kBF16, {4, 64}), wide(DType::kBF16, {4, 65});
  const auto stream = device->stream();
  EXPECT_TRUE(linear({x.view().first(0), &*packed, {}, out.view().first(0)}, stream).ok());
  EXPECT_TRUE(
      linear({tensor2(nullptr, DType::kBF16, 0, 32), &*packed, {}, tensor2(nullptr, DType::kF32, 0, 64)}, stream).ok());
  EXPECT_FALSE(linear({x.view(), nullptr, {}, out.view()}, stream).ok());
  EXPECT_FALSE(linear({x.view(), &*packed, {}, wide.view()}, stream).ok());
  EXPECT_FALSE(linear({x.view(), &*packed, {}, out.view().first(3)}, stream).ok());
  EXPECT_FALSE(linear({wide.view(), &*packed, {}, out.view()}, stream).ok());
  EXPECT_FALSE(linear({x.view(), &*packed, tensor1(out.view().data, DType::kBF16, 64), out.view()}, stream).ok());
  EXPECT_FALSE(linear({tensor2(x.view().data, DType::kI32, 4, 32), &*packed, {}, out.view()}, stream).ok());
  PackedWeight empty;
  EXPECT_FALSE(linear({x.view(), &empty, {}, out.view()}, stream).ok());
  EXPECT_EQ(find_weight_format(device::DeviceKind::kCpu, "wint3"), nullptr);
  EXPECT_EQ(find_weight_format(device::DeviceKind::kCuda, "bf16"), nullptr);
  const WeightFormat& f = format("bf16");
  std::vector<char> dst(f.packed_bytes(64, 32));
  EXPECT_FALSE(f.pack(w.view(), 3, 64, 32, dst.data()).ok());
  EXPECT_FALSE(f.pack(w.view().first(10), 0, 64, 32, dst.data()).ok());
  EXPECT_FALSE(f.pack(w.view(), 0, 64, 33, dst.data()).ok());
}

TEST(GroupedLinear, EveryExpertAsItsOwnLinear) {
  auto device = cpu();
  const int64_t experts = 7, n = 130, k = 66;
  const std::vector<int32_t> offsets{0, 3, 3, 4, 110, 110, 117, 117};
  const Values offset_values = int_values(offsets);
  std::vector<PackedWeight> weights;
  for (int64_t e = 0; e < experts; ++e) {
    auto w =
        pack_weight(*device, format("bf16"), random_values(DType::kBF16, {n, k}, 20 + static_cast<uint32_t>(e)).view());
    ASSERT_TRUE(w.ok());
    weights.push_back(std::move(*w));
  }
  for (const auto isa : available_isas()) {
    const UseIsa use(isa);
    for (const DType type : {DType::kBF16, DType::kF32}) {
      const Values x = random_values(type, {117, k}, 9);
      for (const int threads : {1, 2, 3}) {
        Threads pool(threads);
        Values out(type, {117, n}), want(type, {117, n});
        ASSERT_TRUE(grouped_linear({x.view(), offset_values.view(), weights, out.view()}, pool.stream()).ok());
        for (int64_t e = 0; e < experts; ++e) {
          const int64_t begin = offsets[static_cast<size_t>(e)], count = offsets[static_cast<size_t>(e) + 1] - begin;
          TensorView in = x.view(), to = want.view();
          in.data = x.view().row_bytes(begin), in.dim[0] = count;
          to.data = want.view().row_bytes(begin), to.dim[0] = count;
          ASSERT_TRUE(linear({in, &weights[static_cast<size_t>(e)], {}, to}, pool.stream()).ok());
        }
        for (int64_t t = 0; t < 117; ++t) ASSERT_EQ(out.row(t), want.row(t)) << t;
      }
    }
  }
  const Values x = random_values(DType::kBF16, {117, k}, 9);
  Values out(DType::kBF16, {117, n});
  const auto stream = device->stream();
  EXPECT_FALSE(
      grouped_linear({x.view(), int_values({0, 3, 2, 4, 110, 110, 117, 117}).view(), weights, out.view()}, stream)
          .ok());
  EXPECT_FALSE(
      grouped_linear({x.view(), int_values({0, 3, 3, 4, 110, 110, 117, 118}).view(), weights, out.view()}, stream)
          .ok());
  EXPECT_FALSE(grouped_linear({x.view(), int_values({0, 3}).view(), weights, out.view()}, stream).ok());
  EXPECT_FALSE(grouped_linear({x.view(), offset_values.view(), {}, out.view()}, stream).ok());
  EXPECT_TRUE(
      grouped_linear({x.view(), int_values({0, 0, 0, 0, 0, 0, 0, 0}).view(), weights, out.view()}, stream).ok());
}

TEST(HeadLinear, EveryHeadAsItsOwnLinear) {
  auto device = cpu();
  const int64_t heads = 5, n = 96, k = 40, tokens = 11;
  std::vector<PackedWeight> weights;
  std::vector<Values> sources;
  for (int64_t h = 0; h < heads; ++h) {
    sources.push_back(random_values(DType::kBF16, {n, k}, 40 + static_cast<uint32_t>(h)));
    auto w = pack_weight(*device, format("bf16"), sources.back().view());
    ASSERT_TRUE(w.ok());
    weights.push_back(std::move(*w));
  }
  for (const auto isa : available_isas()) {
    const UseIsa use(isa);
    Threads pool(2);
    const Values x = random_values(DType::kBF16, {tokens, heads, k}, 10);
    Values out(DType::kF32, {tokens, heads, n});
    ASSERT_TRUE(head_linear({x.view(), weights, out.view()}, pool.stream()).ok());
    Worst worst;
    for (int64_t t = 0; t < tokens; ++t) {
      for (int64_t h = 0; h < heads; ++h) {
        for (int64_t i = 0; i < n; ++i) {
          double sum = 0;
          for (int64_t j = 0; j < k; ++j) {
            sum += static_cast<double>(x.get(t, h, j)) * static_cast<double>(sources[static_cast<size_t>(h)].get(i, j));
          }
          worst.add(out.get(t, h, i), sum);
        }
      }
    }
    EXPECT_LE(worst.relative(), tolerance(DType::kF32));
    EXPECT_FALSE(head_linear({x.view(), std::span(weights).first(4), out.view()}, pool.stream()).ok());
  }
}

TEST(Embedding, FromPackedWeight) {
  auto device = cpu();
  const int64_t vocab = 150, width = 37;
  for (const char* name : {"bf16", "f32"}) {
    const Values w = random_values(DType::kBF16, {vocab, width}, 11);
    auto packed = pack_weight(*device, format(name), w.view());
    ASSERT_TRUE(packed.ok());
    const Values ids = int_values({0, 149, 63, 64, 7, 7});
    Values out(DType::kBF16, {6, width}), plain(DType::kBF16, {6, width});
    EmbeddingParams p{{}, ids.view(), out.view(), &*packed};
    ASSERT_TRUE(embedding(p, device->stream()).ok());
    ASSERT_TRUE(embedding({w.view(), ids.view(), plain.view()}, device->stream()).ok());
    for (int64_t t = 0; t < 6; ++t) EXPECT_EQ(out.row(t), plain.row(t));
    const Values bad = int_values({0, 150, 63, 64, 7, 7});
    p.ids = bad.view();
    EXPECT_FALSE(embedding(p, device->stream()).ok());
  }
}

}  // namespace
}  // namespace tern::ops
