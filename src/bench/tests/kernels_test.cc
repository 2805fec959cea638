// tern bench kernels on a CPU: every kind of op runs, is timed and counted.
#include "bench/kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace tern::bench {
namespace {

app::OpenedDevice cpu() {
  app::OpenedDevice open;
  auto device = device::make_cpu_device({.threads = 1, .pin = false});
  EXPECT_TRUE(device.ok());
  open.device = std::move(device).value();
  return open;
}

// The smallest item of a group whose shape has this text.
KernelResult run_one(KernelBencher& bencher, const std::vector<KernelBench>& items, const std::string& text) {
  for (const KernelBench& item : items) {
    if (item.shape.find(text) == std::string::npos) continue;
    KernelCeilings ceilings;
    ceilings.read = 1e10, ceilings.product = 1e11;
    auto result = run_kernel_bench(bencher, item, ceilings, nullptr);
    EXPECT_TRUE(result.ok()) << item.shape << ": " << (result.ok() ? "" : result.error().message);
    return result.ok() ? *result : KernelResult{};
  }
  ADD_FAILURE() << "no shape has " << text;
  return {};
}

TEST(KernelBencher, EveryKindOfOpRuns) {
  app::OpenedDevice open = cpu();
  KernelBencher bencher(open, size_t{1} << 20, 1e-4);
  struct Wanted {
    std::vector<KernelBench> items;
    const char* shape;
  };
  for (const Wanted& w : {Wanted{bench_products(), "ernie-0.3b qkv 2560x1024 rows 1"},
                          Wanted{bench_attention(), "ernie-0.3b 16/2 heads 1 x 1k"},
                          Wanted{bench_attention(), "ernie-0.3b 16/2 heads 8 x 1k and the pass before it"},
                          Wanted{bench_attention(), "qwen2.5-vl 16 heads of 80, 64 x 64"},
                          Wanted{bench_rows(), "residual + rms, 32 x 1024"}, Wanted{bench_rows(), "silu, 1 x 3072"},
                          Wanted{bench_rows(), "cache write, 16/2 heads, 32 rows"},
                          Wanted{bench_sampling(), "penalties and top-p 0.8, 1 x 103424"}}) {
    const KernelResult r = run_one(bencher, w.items, w.shape);
    EXPECT_GT(r.seconds, 0) << w.shape;
    EXPECT_GT(r.bytes, 0) << w.shape;
    EXPECT_NEAR(r.ideal, std::max(r.bytes / 1e10, r.flops / 1e11), 1e-12) << w.shape;
  }
}

TEST(KernelBencher, CountsWhatAProductMoves) {
  app::OpenedDevice open = cpu();
  KernelBencher bencher(open, size_t{1} << 20, 1e-4);
  const KernelResult r = run_one(bencher, bench_products(), "ernie-0.3b o 1024x2048 rows 8");
  EXPECT_EQ(r.flops, 2.0 * 8 * 1024 * 2048);
  EXPECT_EQ(r.bytes, 1024 * 2048 * 2 + 8 * 2048 * 2 + 8 * 1024 * 4);
}

TEST(KernelBencher, InputsTakeTurnsUntilNoCacheHoldsThem) {
  app::OpenedDevice open = cpu();
  const KernelBencher bencher(open, 1000, 1e-4);
  EXPECT_EQ(bencher.turns(2000), 1);
  EXPECT_EQ(bencher.turns(100), 11);
  EXPECT_EQ(bencher.turns(1), 64);
}

TEST(KernelBencher, ShapesHaveDifferentNames) {
  std::set<std::string> names;
  size_t count = 0;
  for (const auto& items :
       {bench_products(), bench_codes(), bench_attention(), bench_rows(), bench_experts(), bench_sampling()}) {
    for (const KernelBench& item : items) names.insert(item.group + item.shape), ++count;
  }
  EXPECT_EQ(names.size(), count);
}

}  // namespace
}  // namespace tern::bench
