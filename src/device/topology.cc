#include "device/topology.h"

#include <sched.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <fstream>
#include <limits>
#include <optional>
#include <set>
#include <sstream>
#include <string_view>
#include <thread>

namespace tern::device {
namespace {

std::optional<std::string> read_first_line(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  if (!in || !std::getline(in, line)) return std::nullopt;
  return line;
}

std::optional<uint64_t> parse_number(std::string_view s) {
  uint64_t v = 0;
  const auto [end, ec] = std::from_chars(s.data(), s.data() + s.size(), v);
  if (ec != std::errc() || end == s.data()) return std::nullopt;
  return v;
}

std::optional<uint64_t> read_number(const std::string& path) {
  const auto line = read_first_line(path);
  return line ? parse_number(*line) : std::nullopt;
}

std::vector<int> allowed_cpus() {
  std::vector<int> cpus;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) {
    for (int c = 0; c < CPU_SETSIZE; ++c) {
      if (CPU_ISSET(static_cast<size_t>(c), &set)) cpus.push_back(c);
    }
  }
  if (cpus.empty()) {
    const int n = std::max(1u, std::thread::hardware_concurrency());
    for (int c = 0; c < n; ++c) cpus.push_back(c);
  }
  return cpus;
}

// Where this process stands in a cgroup hierarchy: `controller` empty asks for version 2.
std::optional<std::string> cgroup_path(const std::string& root, std::string_view controller) {
  std::ifstream in(root + "/proc/self/cgroup");
  std::string line;
  while (std::getline(in, line)) {
    const size_t a = line.find(':');
    const size_t b = a == std::string::npos ? a : line.find(':', a + 1);
    if (b == std::string::npos) continue;
    std::string names = ",", wanted = ",";
    names.append(line, a + 1, b - a - 1).append(",");
    wanted.append(controller).append(",");
    if (controller.empty() ? names == ",," : names.find(wanted) != std::string::npos) return line.substr(b + 1);
  }
  return std::nullopt;
}

// Calls f with the group's folder and each of its parents up to the mount point. Inside a container the path may name a
// folder that is not visible; the mount point itself is then the group.
template <class F>
void for_each_group(const std::string& mount, std::string path, F&& f) {
  while (!path.empty() && path != "/") {
    f(mount + path);
    const size_t slash = path.rfind('/');
    path.resize(slash == std::string::npos ? 0 : slash);
  }
  f(mount);
}

int cpu_quota(const std::string& root) {
  double least = 1e9;
  if (const auto path = cgroup_path(root, "")) {
    for_each_group(root + "/sys/fs/cgroup", *path, [&](const std::string& dir) {
      const auto line = read_first_line(dir + "/cpu.max");
      if (!line) return;
      std::istringstream in(*line);
      std::string quota;
      double period = 0;
      if (!(in >> quota >> period) || period <= 0) return;
      if (const auto q = parse_number(quota)) least = std::min(least, static_cast<double>(*q) / period);
    });
  }
  if (const auto path = cgroup_path(root, "cpu")) {
    for_each_group(root + "/sys/fs/cgroup/cpu", *path, [&](const std::string& dir) {
      const auto quota = read_number(dir + "/cpu.cfs_quota_us");
      const auto period = read_number(dir + "/cpu.cfs_period_us");
      if (quota && period && *period > 0) {
        least = std::min(least, static_cast<double>(*quota) / static_cast<double>(*period));
      }
    });
  }
  return least >= 1e9 ? std::numeric_limits<int>::max() : std::max(1, static_cast<int>(least + 0.999));
}

size_t meminfo(const std::string& root, std::string_view key) {
  std::ifstream in(root + "/proc/meminfo");
  std::string line;
  while (std::getline(in, line)) {
    if (line.compare(0, key.size(), key) != 0 || line.size() <= key.size() || line[key.size()] != ':') continue;
    const size_t digit = line.find_first_of("0123456789");
    if (digit == std::string::npos) return 0;
    return static_cast<size_t>(parse_number(std::string_view(line).substr(digit)).value_or(0)) * 1024;
  }
  return 0;
}

void bound(MemoryLimits& m, std::optional<uint64_t> limit, std::optional<uint64_t> used, uint64_t reclaimable) {
  if (!limit || *limit > (uint64_t{1} << 60)) return;
  m.total = std::min<size_t>(m.total, *limit);
  const uint64_t busy = used.value_or(0) > reclaimable ? *used - reclaimable : 0;
  m.available = std::min<size_t>(m.available, *limit > busy ? *limit - busy : 0);
}

// A field of a memory.stat file: page cache that the kernel can drop counts as free.
uint64_t memory_stat(const std::string& dir, std::string_view key) {
  std::ifstream in(dir + "/memory.stat");
  std::string name;
  uint64_t value = 0;
  while (in >> name >> value) {
    if (name == key) return value;
  }
  return 0;
}

}  // namespace

CpuTopology read_cpu_topology(const std::string& root) {
  CpuTopology t;
  std::set<std::string> cores;
  std::vector<int> siblings;
  for (const int cpu : allowed_cpus()) {
    const std::string dir = root + "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/";
    auto core = read_first_line(dir + "core_cpus_list");
    if (!core) core = read_first_line(dir + "thread_siblings_list");
    const bool first = cores.insert(core.value_or("cpu" + std::to_string(cpu))).second;
    (first ? t.cpus : siblings).push_back(cpu);
  }
  t.physical_cores = static_cast<int>(t.cpus.size());
  t.cpus.insert(t.cpus.end(), siblings.begin(), siblings.end());
  t.default_threads = std::max(1, std::min(t.physical_cores, cpu_quota(root)));
  return t;
}

MemoryLimits read_memory_limits(const std::string& root) {
  MemoryLimits m{meminfo(root, "MemTotal"), meminfo(root, "MemAvailable")};
  if (const auto path = cgroup_path(root, "")) {
    for_each_group(root + "/sys/fs/cgroup", *path, [&](const std::string& dir) {
      bound(m, read_number(dir + "/memory.max"), read_number(dir + "/memory.current"),
            memory_stat(dir, "inactive_file"));
    });
  }
  if (const auto path = cgroup_path(root, "memory")) {
    for_each_group(root + "/sys/fs/cgroup/memory", *path, [&](const std::string& dir) {
      bound(m, read_number(dir + "/memory.limit_in_bytes"), read_number(dir + "/memory.usage_in_bytes"),
            memory_stat(dir, "total_inactive_file"));
    });
  }
  return m;
}

std::string read_cpu_name(const std::string& root) {
  std::ifstream in(root + "/proc/cpuinfo");
  std::string line;
  while (std::getline(in, line)) {
    if (line.rfind("model name", 0) != 0) continue;
    const size_t colon = line.find(':');
    if (colon == std::string::npos) break;
    size_t begin = colon + 1;
    while (begin < line.size() && std::isspace(static_cast<unsigned char>(line[begin]))) ++begin;
    return line.substr(begin);
  }
  return "CPU";
}

}  // namespace tern::device
