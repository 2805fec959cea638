// Which logical CPUs this process may use, and how many threads are worth starting.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace tern::device {

struct CpuTopology {
  // Usable logical CPUs, one of each physical core first, their hardware siblings after them.
  std::vector<int> cpus;
  int physical_cores = 1;   // among the usable ones
  int default_threads = 1;  // physical cores, bounded by a cgroup CPU quota
};
// From sched_getaffinity, /sys/devices/system/cpu and the cgroup's cpu.max. `root` is put before the /sys and /proc
// paths (tests). Never fails: what cannot be read counts as absent.
CpuTopology read_cpu_topology(const std::string& root = "");

struct MemoryLimits {
  size_t total = 0;      // bytes: MemTotal, bounded by cgroup limits
  size_t available = 0;  // bytes: MemAvailable, bounded by what the cgroups leave
};
// /proc/meminfo and the memory cgroup (version 2 or 1) of this process with all its parents.
MemoryLimits read_memory_limits(const std::string& root = "");

// "model name" of /proc/cpuinfo.
std::string read_cpu_name(const std::string& root = "");

}  // namespace tern::device
