#include "base/machine/cpus.h"

#include <sched.h>

#include <algorithm>
#include <sstream>
#include <thread>

#include "base/machine/cgroup.h"

namespace tern {
namespace {

constexpr uint64_t kMaxCpu = 65535;

std::vector<int> affinity() {
  std::vector<int> cpus;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) {
    for (int c = 0; c < CPU_SETSIZE; ++c) {
      if (CPU_ISSET(static_cast<size_t>(c), &set)) cpus.push_back(c);
    }
  }
  if (cpus.empty()) {
    const int n = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
    for (int c = 0; c < n; ++c) cpus.push_back(c);
  }
  return cpus;
}

double quota(const std::string& root) {
  double least = std::numeric_limits<double>::infinity();
  for_each_cgroup(root, "", [&](const std::string& folder) {
    const auto line = read_first_line(folder + "/cpu.max");
    if (!line) return;
    std::istringstream in(*line);
    std::string limit;
    double period = 0;
    if (!(in >> limit >> period) || period <= 0) return;
    if (const auto q = parse_number(limit)) least = std::min(least, static_cast<double>(*q) / period);
  });
  for_each_cgroup(root, "cpu", [&](const std::string& folder) {
    const auto limit = read_number(folder + "/cpu.cfs_quota_us");
    const auto period = read_number(folder + "/cpu.cfs_period_us");
    if (limit && period && *period > 0)
      least = std::min(least, static_cast<double>(*limit) / static_cast<double>(*period));
  });
  return least;
}

}  // namespace

std::vector<int> parse_cpu_list(std::string_view text) {
  std::vector<int> cpus;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    const std::string_view item = text.substr(0, comma);
    text.remove_prefix(std::min(comma + 1, text.size()));
    const size_t dash = item.find('-');
    const auto first = parse_number(item.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : parse_number(item.substr(dash + 1));
    if (!first || !last || *last > kMaxCpu) break;
    for (uint64_t c = *first; c <= *last; ++c) cpus.push_back(static_cast<int>(c));
  }
  std::ranges::sort(cpus);
  cpus.erase(std::ranges::unique(cpus).begin(), cpus.end());
  return cpus;
}

int CpuShare::threads() const {
  const double most = std::min(static_cast<double>(cpus.size()), quota);
  return std::max(1, static_cast<int>(most));
}

CpuShare read_cpu_share(const std::string& root, std::vector<int> allowed) {
  return {.cpus = allowed.empty() ? affinity() : std::move(allowed), .quota = quota(root)};
}

int usable_cpus() { return read_cpu_share().threads(); }

}  // namespace tern
