#include "device/topology.h"

#include <algorithm>
#include <cctype>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string_view>

#include "base/machine/cgroup.h"
#include "base/machine/cpus.h"

namespace tern::device {
namespace {

constexpr int kMaxNodes = 64;

// "Key:   number kB" of a file under /proc, in bytes; 0 where there is none.
size_t kilobytes(const std::string& file, std::string_view key) {
  std::ifstream in(file);
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

// Memory node of each CPU; empty on a machine without nodes.
std::map<int, int> nodes(const std::string& root) {
  std::map<int, int> of;
  for (int node = 0; node < kMaxNodes; ++node) {
    const auto list = read_first_line(root + "/sys/devices/system/node/node" + std::to_string(node) + "/cpulist");
    if (!list) continue;
    for (const int cpu : parse_cpu_list(*list)) of[cpu] = node;
  }
  return of;
}

// Intel's hybrid processors list their performance cores in a file of their own; elsewhere cores say how fast they are.
// A loop's parts are alike, so that a slow core would be waited for.
std::vector<int> performance_cores(const std::string& root, const std::vector<int>& cpus) {
  std::vector<int> fast;
  if (const auto list = read_first_line(root + "/sys/devices/cpu_core/cpus")) {
    const std::vector<int> all = parse_cpu_list(*list);
    std::ranges::set_intersection(cpus, all, std::back_inserter(fast));
    return fast.empty() ? cpus : fast;
  }
  std::vector<uint64_t> capacity;
  for (const int cpu : cpus) {
    capacity.push_back(
        read_number(root + "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/cpu_capacity").value_or(0));
  }
  const uint64_t most = std::ranges::max(capacity);
  for (size_t i = 0; i < cpus.size(); ++i) {
    if (capacity[i] == most) fast.push_back(cpus[i]);
  }
  return fast;
}

}  // namespace

std::vector<int> CpuTopology::nodes_of(int first, int threads) const {
  std::set<int> found;
  for (int i = first; i < first + threads && i < static_cast<int>(nodes.size()); ++i)
    found.insert(nodes[static_cast<size_t>(i)]);
  return {found.begin(), found.end()};
}

CpuTopology read_cpu_topology(const std::string& root, const std::vector<int>& allowed) {
  const CpuShare share = read_cpu_share(root, allowed);
  CpuTopology t;
  const std::vector<int> usable = performance_cores(root, share.cpus);
  const auto node_of = nodes(root);
  std::set<std::string> cores;
  std::map<int, std::vector<int>> firsts, siblings;  // by node
  for (const int cpu : usable) {
    const std::string dir = root + "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/";
    auto core = read_first_line(dir + "core_cpus_list");
    if (!core) core = read_first_line(dir + "thread_siblings_list");
    const bool first = cores.insert(core.value_or("cpu" + std::to_string(cpu))).second;
    const auto node = node_of.find(cpu);
    (first ? firsts : siblings)[node == node_of.end() ? 0 : node->second].push_back(cpu);
  }
  std::vector<int> order;
  for (const auto& [node, list] : firsts) order.push_back(node);
  for (const auto& [node, list] : siblings) {
    if (!firsts.contains(node)) order.push_back(node);
  }
  std::ranges::stable_sort(order, [&](int a, int b) { return firsts[a].size() > firsts[b].size(); });
  const auto add = [&](const std::map<int, std::vector<int>>& of) {
    for (const int node : order) {
      const auto list = of.find(node);
      if (list == of.end()) continue;
      t.cpus.insert(t.cpus.end(), list->second.begin(), list->second.end());
      t.nodes.insert(t.nodes.end(), list->second.size(), node);
    }
  };
  add(firsts);
  t.physical_cores = static_cast<int>(t.cpus.size());
  add(siblings);
  for (const int cpu : share.cpus) {
    if (std::ranges::binary_search(usable, cpu)) continue;
    const auto node = node_of.find(cpu);
    t.cpus.push_back(cpu), t.nodes.push_back(node == node_of.end() ? 0 : node->second);
  }
  t.slow_cores = static_cast<int>(share.cpus.size() - usable.size());
  t.quota = share.limited();
  t.default_threads = std::max(1, std::min(t.physical_cores, share.threads()));
  return t;
}

MemoryLimits read_memory_limits(const std::string& root) {
  const std::string file = root + "/proc/meminfo";
  MemoryLimits m{kilobytes(file, "MemTotal"), kilobytes(file, "MemAvailable")};
  for_each_cgroup(root, "", [&](const std::string& dir) {
    bound(m, read_number(dir + "/memory.max"), read_number(dir + "/memory.current"), memory_stat(dir, "inactive_file"));
  });
  for_each_cgroup(root, "memory", [&](const std::string& dir) {
    bound(m, read_number(dir + "/memory.limit_in_bytes"), read_number(dir + "/memory.usage_in_bytes"),
          memory_stat(dir, "total_inactive_file"));
  });
  return m;
}

double huge_page_share(const std::string& root) {
  const std::string file = root + "/proc/self/smaps_rollup";
  const size_t own = kilobytes(file, "Anonymous");
  return own == 0 ? -1.0 : static_cast<double>(kilobytes(file, "AnonHugePages")) / static_cast<double>(own);
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
