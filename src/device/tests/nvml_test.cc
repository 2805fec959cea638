#include "device/nvml.h"

#include <gtest/gtest.h>

namespace tern::device {
namespace {

TEST(Nvml, SaysWhatEachGpuKnows) {
  const auto nvml = Nvml::open(TERN_FAKE_NVML);
  ASSERT_NE(nvml, nullptr);
  const auto gpus = nvml->read();
  ASSERT_EQ(gpus.size(), 2u);
  EXPECT_EQ(gpus[0].uuid, "GPU-1");
  EXPECT_EQ(gpus[0].utilization, 0.25);
  EXPECT_EQ(gpus[0].memory_total, 8000u);
  EXPECT_EQ(gpus[0].memory_used, 2000u);
  EXPECT_EQ(gpus[0].watts, 70.5);
  EXPECT_EQ(gpus[0].most_watts, 700.0);
  EXPECT_EQ(gpus[0].joules, 1234.0);
  EXPECT_EQ(gpus[1].uuid, "GPU-2");
  EXPECT_FALSE(gpus[1].utilization);
  EXPECT_FALSE(gpus[1].joules);
  EXPECT_EQ(gpus[1].watts, 70.5);
}

TEST(Nvml, IsNotThereWithoutItsLibrary) {
  EXPECT_EQ(Nvml::open("/nowhere/libnvidia-ml.so.1"), nullptr);
  EXPECT_EQ(Nvml::open("libm.so.6"), nullptr);  // lacks its functions
}

}  // namespace
}  // namespace tern::device
