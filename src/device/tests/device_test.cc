#include "device/device.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/cpu_isa.h"
#include "device/arena.h"
#include "device/compute_pool.h"
#include "device/topology.h"

namespace tern::device {
namespace {

TEST(CpuDevice, DescribesItself) {
  auto d = make_cpu_device({2, false});
  ASSERT_TRUE(d.ok());
  const DeviceInfo& info = (*d)->info();
  EXPECT_NE(info.name.find(isa_name(detect_isa())), std::string::npos);
  EXPECT_NE(info.name.find("2 threads"), std::string::npos);
  EXPECT_GT(info.memory_total, size_t{1} << 20);
  EXPECT_LE(info.memory_available, info.memory_total);
  EXPECT_EQ((*d)->stream().pool->threads(), 2);
  EXPECT_TRUE((*d)->synchronize((*d)->stream()).ok());
  EXPECT_FALSE(make_cpu_device({-1, false}).ok());
  EXPECT_FALSE(make_cpu_device({100000, false}).ok());
}

TEST(CpuDevice, BuffersAreZeroAndAligned) {
  auto d = make_cpu_device({1, false});
  ASSERT_TRUE(d.ok());
  for (const size_t bytes : {size_t{1}, size_t{5000}, size_t{5} << 20}) {
    auto b = (*d)->allocate(bytes);
    ASSERT_TRUE(b.ok());
    EXPECT_GE(b->bytes(), bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(b->data()) % (bytes > (4u << 20) ? size_t{2} << 20 : 64), 0u);
    for (size_t i = 0; i < bytes; i += 97) ASSERT_EQ(b->data()[i], 0);
    std::memset(b->data(), 1, b->bytes());
    Buffer moved = std::move(*b);
    EXPECT_EQ(b->data(), nullptr);
    EXPECT_EQ(moved.data()[bytes - 1], 1);
  }
  auto none = (*d)->allocate(0);
  ASSERT_TRUE(none.ok());
  EXPECT_EQ(none->bytes(), 0u);
  auto huge = (*d)->allocate(~size_t{0} - 5);
  ASSERT_FALSE(huge.ok());
  EXPECT_EQ(huge.error().code, ErrorCode::kResourceExhausted);
  auto large = (*d)->allocate(size_t{1} << 60);
  ASSERT_FALSE(large.ok());
  EXPECT_NE(large.error().message.find("1152921504606846976"), std::string::npos) << large.error().message;
}

TEST(CpuDevice, Copies) {
  auto d = make_cpu_device({1, false});
  ASSERT_TRUE(d.ok());
  auto a = (*d)->allocate_host(16), b = (*d)->allocate(16);
  std::memcpy(a->data(), "0123456789abcde", 16);
  (*d)->copy_to_device(b->data(), a->data(), 16, (*d)->stream());
  char back[16];
  (*d)->copy_to_host(back, b->data(), 16, (*d)->stream());
  EXPECT_STREQ(back, "0123456789abcde");
}

TEST(Arena, MeasuresThenHandsOut) {
  Arena measure(nullptr, 0);
  EXPECT_EQ(measure.take(100), nullptr);
  const size_t mark = measure.mark();
  measure.take(1);
  measure.release(mark);
  measure.take(64);
  EXPECT_EQ(measure.peak(), 192u);
  alignas(64) char memory[192];
  Arena real(memory, sizeof memory);
  EXPECT_EQ(real.take(100), memory);
  EXPECT_EQ(real.take(64), memory + 128);
}

}  // namespace
}  // namespace tern::device
