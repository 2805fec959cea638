// tern bench kernels on a CPU: every kind of op runs, is timed and counted.
#include "bench/kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace tern::bench {
namespace {

app::OpenDevice cpu() {
  app::OpenDevice open;
  auto device = device::make_cpu_device({.threads = 1, .pin = false});
  EXPECT_TRUE(device.ok());
  open.device = std::move(device).value();
  return open;
}

// The smallest item of a group whose shape has this text.
LabResult run_one(Lab& lab, const std::vector<LabItem>& items, const std::string& text) {
  for (const LabItem& item : items) {
    if (item.shape.find(text) == std::string::npos) continue;
    LabCeilings ceilings;
    ceilings.read = 1e10, ceilings.product = 1e11;
    auto result = run_lab_item(lab, item, ceilings, nullptr);
    EXPECT_TRUE(result.ok()) << item.shape << ": " << (result.ok() ? "" : result.error().message);
    return result.ok() ? *result : LabResult{};
  }
  ADD_FAILURE() << "no shape has " << text;
  return {};
}

TEST(Lab, EveryKindOfOpRuns) {
  app::OpenDevice open = cpu();
  Lab lab(open, size_t{1} << 20, 1e-4);
  struct Wanted {
    std::vector<LabItem> items;
    const char* shape;
  };
  for (const Wanted& w :
       {Wanted{lab_products(), "ernie-0.3b qkv 2560x1024 rows 1"},
        Wanted{lab_attention(), "ernie-0.3b 16/2 heads 1 x 1k"},
        Wanted{lab_attention(), "ernie-0.3b 16/2 heads 8 x 1k and the pass before it"},
        Wanted{lab_attention(), "qwen2.5-vl 16 heads of 80, 64 x 64"}, Wanted{lab_rows(), "residual + rms, 32 x 1024"},
        Wanted{lab_rows(), "silu, 1 x 3072"}, Wanted{lab_rows(), "cache write, 16/2 heads, 32 rows"},
        Wanted{lab_sampling(), "penalties and top-p 0.8, 1 x 103424"}}) {
    const LabResult r = run_one(lab, w.items, w.shape);
    EXPECT_GT(r.seconds, 0) << w.shape;
    EXPECT_GT(r.bytes, 0) << w.shape;
    EXPECT_NEAR(r.ideal, std::max(r.bytes / 1e10, r.flops / 1e11), 1e-12) << w.shape;
  }
}

TEST(Lab, CountsWhatAProductMoves) {
  app::OpenDevice open = cpu();
  Lab lab(open, size_t{1} << 20, 1e-4);
  const LabResult r = run_one(lab, lab_products(), "ernie-0.3b o 1024x2048 rows 8");
  EXPECT_EQ(r.flops, 2.0 * 8 * 1024 * 2048);
  EXPECT_EQ(r.bytes, 1024 * 2048 * 2 + 8 * 2048 * 2 + 8 * 1024 * 4);
}

TEST(Lab, InputsTakeTurnsUntilNoCacheHoldsThem) {
  app::OpenDevice open = cpu();
  const Lab lab(open, 1000, 1e-4);
  EXPECT_EQ(lab.turns(2000), 1);
  EXPECT_EQ(lab.turns(100), 11);
  EXPECT_EQ(lab.turns(1), 64);
}

TEST(Lab, ShapesHaveDifferentNames) {
  std::set<std::string> names;
  size_t count = 0;
  for (const auto& items : {lab_products(), lab_attention(), lab_rows(), lab_experts(), lab_sampling()}) {
    for (const LabItem& item : items) names.insert(item.group + item.shape), ++count;
  }
  EXPECT_EQ(names.size(), count);
}

}  // namespace
}  // namespace tern::bench
