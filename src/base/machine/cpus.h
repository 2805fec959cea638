// Which logical CPUs this process may use, and how much of them.
#pragma once

#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace tern {

// "0-3,8": a list of CPUs as the kernel writes it, ascending; empty where it cannot be read. Numbers above 65535 end
// it.
std::vector<int> parse_cpu_list(std::string_view text);

struct CpuShare {
  std::vector<int> cpus;                                   // of the affinity mask, ascending; never empty
  double quota = std::numeric_limits<double>::infinity();  // CPUs' worth of time that the control groups allow
  bool limited() const { return quota < static_cast<double>(cpus.size()); }
  // How many threads can run at once all the time, at least one. A quota rounds down: with 8 threads on 7.65 CPUs one
  // of them is held up at the end of every period, and the others wait for it.
  int threads() const;
};
// From sched_getaffinity and the control groups' cpu.max (version 1: cpu.cfs_quota_us). `root` is put before /proc and
// /sys and `allowed`, unless it is empty, stands for the affinity mask (tests). Never fails: what cannot be read counts
// as absent.
CpuShare read_cpu_share(const std::string& root = "", std::vector<int> allowed = {});

// read_cpu_share().threads(): what pools of threads are sized by. Not the machine's number of CPUs: a container may
// have few of many.
int usable_cpus();

}  // namespace tern
