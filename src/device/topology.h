// Which logical CPUs compute, where their memory is, and how many threads are worth starting.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace tern::device {

struct CpuTopology {
  // Usable logical CPUs: one of each physical core first, their hardware siblings after them; both by memory node, the
  // node with the most cores first. Behind them the efficiency cores of a hybrid processor.
  std::vector<int> cpus;
  std::vector<int> nodes;   // of each of them
  int physical_cores = 1;   // among the usable ones, efficiency cores apart unless there are no others
  int default_threads = 1;  // physical cores, bounded by a cgroup CPU quota, which rounds down
  bool quota = false;       // the control groups allow less time than the CPUs have
  int slow_cores = 0;       // efficiency cores: left alone unless more threads are asked for than others can run

  // The memory nodes, ascending, of the first `threads` CPUs from `first` on.
  std::vector<int> nodes_of(int first, int threads) const;
};
// From base/machine/cpus.h and /sys/devices. `root` is put before the /sys and /proc paths and `allowed`, unless it is
// empty, stands for the affinity mask (tests). Never fails: what cannot be read counts as absent.
CpuTopology read_cpu_topology(const std::string& root = "", const std::vector<int>& allowed = {});

struct MemoryLimits {
  size_t total = 0;      // bytes: MemTotal, bounded by cgroup limits
  size_t available = 0;  // bytes: MemAvailable, bounded by what the cgroups leave
};
// /proc/meminfo and the memory cgroup (version 2 or 1) of this process with all its parents.
MemoryLimits read_memory_limits(const std::string& root = "");

// Of this process's own memory (not files), the share in 2 MiB pages, 0 to 1: /proc/self/smaps_rollup. Negative where
// it cannot be read.
double huge_page_share(const std::string& root = "");

// "model name" of /proc/cpuinfo.
std::string read_cpu_name(const std::string& root = "");

}  // namespace tern::device
