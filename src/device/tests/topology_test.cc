#include "device/topology.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include "base/machine/cpus.h"

namespace tern::device {
namespace {

// A made-up machine under a folder.
class FakeRoot {
 public:
  FakeRoot() : dir_(std::filesystem::temp_directory_path() / ("tern_topology_test_" + std::to_string(getpid()))) {
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

// `count` CPUs from `first` on, `siblings` of them a core.
void write_cores(FakeRoot& root, int first, int count, int siblings) {
  for (int cpu = first; cpu < first + count; ++cpu) {
    const int core = first + (cpu - first) / siblings * siblings;
    root.write("sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/core_cpus_list",
               std::to_string(core) + "-" + std::to_string(core + siblings - 1) + "\n");
  }
}

std::vector<int> count_up(int first, int count) {
  std::vector<int> v(static_cast<size_t>(count));
  std::iota(v.begin(), v.end(), first);
  return v;
}

TEST(Topology, ThisMachine) {
  const CpuTopology real = read_cpu_topology();
  ASSERT_GE(real.cpus.size(), 1u);
  EXPECT_EQ(real.nodes.size(), real.cpus.size());
  EXPECT_GE(real.default_threads, 1);
  EXPECT_LE(real.physical_cores, static_cast<int>(real.cpus.size()));
  const double share = huge_page_share();
  EXPECT_LE(share, 1.0);
}

TEST(Topology, SiblingsComeLast) {
  FakeRoot root;
  write_cores(root, 0, 8, 2);
  const CpuTopology t = read_cpu_topology(root.path(), count_up(0, 8));
  EXPECT_EQ(t.cpus, (std::vector<int>{0, 2, 4, 6, 1, 3, 5, 7}));
  EXPECT_EQ(t.physical_cores, 4);
  EXPECT_EQ(t.default_threads, 4);
  EXPECT_FALSE(t.quota);
  // A cpuset with one sibling each of two cores: both count as cores.
  EXPECT_EQ(read_cpu_topology(root.path(), {3, 4}).cpus, (std::vector<int>{3, 4}));
  EXPECT_EQ(read_cpu_topology(root.path(), {2, 3}).physical_cores, 1);
}

TEST(Topology, QuotasRoundDown) {
  FakeRoot root;
  root.write("proc/self/cgroup", "0::/outer/job\n");
  const struct {
    const char *outer, *job;
    int threads;
    bool bound;
  } cases[] = {
      {"max 100000", "765000 100000", 7, true},    {"765000 100000", "max 100000", 7, true},
      {"400000 100000", "765000 100000", 4, true}, {"max 100000", "50000 100000", 1, true},
      {"max 100000", "1600000 100000", 8, false},  {"max 100000", "800000 100000", 8, false},
      {"nonsense", "100000 0", 8, false},
  };
  for (const auto& c : cases) {
    root.write("sys/fs/cgroup/outer/cpu.max", std::string(c.outer) + "\n");
    root.write("sys/fs/cgroup/outer/job/cpu.max", std::string(c.job) + "\n");
    const CpuTopology t = read_cpu_topology(root.path(), count_up(0, 8));
    EXPECT_EQ(t.default_threads, c.threads) << c.outer << " and " << c.job;
    EXPECT_EQ(t.quota, c.bound) << c.outer << " and " << c.job;
    EXPECT_EQ(read_cpu_share(root.path(), count_up(0, 8)).threads(), c.threads);
  }
  root.write("proc/self/cgroup", "5:cpu,cpuacct:/job\n");
  root.write("sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "250000\n");
  root.write("sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(read_cpu_topology(root.path(), count_up(0, 8)).default_threads, 2);
  root.write("sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(read_cpu_topology(root.path(), count_up(0, 8)).default_threads, 8);
}

TEST(Topology, EfficiencyCoresComeLast) {
  FakeRoot root;
  write_cores(root, 0, 8, 2);  // four performance cores of two threads
  write_cores(root, 8, 4, 1);  // four efficiency cores
  root.write("sys/devices/cpu_core/cpus", "0-7\n");
  root.write("sys/devices/cpu_atom/cpus", "8-11\n");
  const CpuTopology t = read_cpu_topology(root.path(), count_up(0, 12));
  EXPECT_EQ(t.cpus, (std::vector<int>{0, 2, 4, 6, 1, 3, 5, 7, 8, 9, 10, 11}));
  EXPECT_EQ(t.physical_cores, 4);
  EXPECT_EQ(t.slow_cores, 4);
  // A process that has nothing but efficiency cores uses them.
  const CpuTopology slow = read_cpu_topology(root.path(), {8, 9, 10});
  EXPECT_EQ(slow.physical_cores, 3);
  EXPECT_EQ(slow.slow_cores, 0);
}

TEST(Topology, CoresSayHowFastTheyAre) {
  FakeRoot root;
  write_cores(root, 0, 4, 1);
  for (int cpu = 0; cpu < 4; ++cpu) {
    root.write("sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/cpu_capacity", cpu < 2 ? "462\n" : "1024\n");
  }
  const CpuTopology t = read_cpu_topology(root.path(), count_up(0, 4));
  EXPECT_EQ(t.cpus, (std::vector<int>{2, 3, 0, 1}));
  EXPECT_EQ(t.default_threads, 2);
}

TEST(Topology, NodesBeginWithTheOneOfMostCores) {
  FakeRoot root;
  write_cores(root, 0, 8, 1);
  root.write("sys/devices/system/node/node0/cpulist", "0-3\n");
  root.write("sys/devices/system/node/node1/cpulist", "4-7\n");
  const CpuTopology t = read_cpu_topology(root.path(), count_up(0, 8));
  EXPECT_EQ(t.nodes, (std::vector<int>{0, 0, 0, 0, 1, 1, 1, 1}));
  EXPECT_EQ(t.nodes_of(0, 4), (std::vector<int>{0}));
  EXPECT_EQ(t.nodes_of(2, 4), (std::vector<int>{0, 1}));
  EXPECT_EQ(t.nodes_of(4, 4), (std::vector<int>{1}));
  const CpuTopology cut = read_cpu_topology(root.path(), {2, 4, 5, 6});
  EXPECT_EQ(cut.cpus, (std::vector<int>{4, 5, 6, 2}));
  EXPECT_EQ(cut.nodes, (std::vector<int>{1, 1, 1, 0}));
}

TEST(Topology, CpuLists) {
  EXPECT_EQ(parse_cpu_list("0-3,8\n"), (std::vector<int>{0, 1, 2, 3, 8}));
  EXPECT_EQ(parse_cpu_list("5"), (std::vector<int>{5}));
  EXPECT_TRUE(parse_cpu_list("").empty());
  EXPECT_TRUE(parse_cpu_list("x").empty());
  EXPECT_EQ(parse_cpu_list("1,0-99999999999"), (std::vector<int>{1}));
  EXPECT_EQ(parse_cpu_list("3-1,2"), (std::vector<int>{2}));
}

TEST(Topology, CpuName) {
  FakeRoot root;
  EXPECT_EQ(read_cpu_name(root.path()), "CPU");
  root.write("proc/cpuinfo", "processor : 0\nmodel name\t: Some CPU 9000\n");
  EXPECT_EQ(read_cpu_name(root.path()), "Some CPU 9000");
}

}  // namespace
}  // namespace tern::device
