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

// A made-up machine under a folder.
class FakeRoot {
 public:
  FakeRoot() : dir_(std::filesystem::temp_directory_path() / ("tern_device_test_" + std::to_string(getpid()))) {
    std::filesystem::remove_all(dir_);
  }
  ~FakeRoot() { std::filesystem::remove_all(dir_); }
  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((dir_ / path).parent_path());
    std::ofstream(dir_ / path) << text;
  }
  std::string path() const { return dir_.string(); }

 private:
  std::filesystem::path dir_;
};

TEST(Topology, MemoryIsBoundedByTheGroupAndItsParents) {
  FakeRoot root;
  EXPECT_EQ(read_memory_limits(root.path()).total, 0u);
  root.write("proc/meminfo", "MemTotal:       16000 kB\nMemFree: 1 kB\nMemAvailable:   12000 kB\n");
  EXPECT_EQ(read_memory_limits(root.path()).total, 16000u * 1024);
  EXPECT_EQ(read_memory_limits(root.path()).available, 12000u * 1024);
  root.write("proc/self/cgroup", "0::/outer/inner\n");
  root.write("sys/fs/cgroup/outer/memory.max", "8192000\n");
  root.write("sys/fs/cgroup/outer/memory.current", "2000000\n");
  root.write("sys/fs/cgroup/outer/memory.stat", "anon 5\ninactive_file 500000\n");
  root.write("sys/fs/cgroup/outer/inner/memory.max", "max\n");
  EXPECT_EQ(read_memory_limits(root.path()).total, 8192000u);
  EXPECT_EQ(read_memory_limits(root.path()).available, 8192000u - 1500000u);
  root.write("sys/fs/cgroup/outer/inner/memory.max", "1000\n");
  root.write("sys/fs/cgroup/outer/inner/memory.current", "2000\n");
  EXPECT_EQ(read_memory_limits(root.path()).available, 0u);
  root.write("proc/self/cgroup", "5:cpu,cpuacct:/\n4:memory:/job\n");
  root.write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "4096000\n");
  root.write("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "96000\n");
  EXPECT_EQ(read_memory_limits(root.path()).available, 4000000u);
}

TEST(Topology, SiblingsComeLastAndQuotasCount) {
  const CpuTopology real = read_cpu_topology();
  ASSERT_GE(real.cpus.size(), 1u);
  EXPECT_GE(real.default_threads, 1);
  EXPECT_LE(real.physical_cores, static_cast<int>(real.cpus.size()));
  if (real.cpus.size() < 2) GTEST_SKIP() << "one CPU has no siblings";
  FakeRoot root;
  for (const int cpu : real.cpus) {
    root.write("sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/core_cpus_list",
               std::to_string(cpu / 2) + "\n");
  }
  const CpuTopology pairs = read_cpu_topology(root.path());
  EXPECT_EQ(pairs.cpus.size(), real.cpus.size());
  EXPECT_LT(pairs.physical_cores, static_cast<int>(real.cpus.size()));
  EXPECT_EQ(pairs.default_threads, pairs.physical_cores);
  root.write("proc/self/cgroup", "0::/job\n");
  root.write("sys/fs/cgroup/job/cpu.max", "50000 100000\n");
  EXPECT_EQ(read_cpu_topology(root.path()).default_threads, 1);
}

TEST(Topology, CpuName) {
  FakeRoot root;
  EXPECT_EQ(read_cpu_name(root.path()), "CPU");
  root.write("proc/cpuinfo", "processor : 0\nmodel name\t: Some CPU 9000\n");
  EXPECT_EQ(read_cpu_name(root.path()), "Some CPU 9000");
}

}  // namespace
}  // namespace tern::device
