#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "app/config/device_settings.h"
#include "app/flags/json_text.h"
#include "app/options.h"
#include "app/report.h"
#include "bench/bench.h"
#include "bench/kernels.h"

namespace tern::bench {
namespace {

struct KernelOptions {
  std::string device = "auto", only, match, shape;
  int cpu_threads = 0;
  double ceiling_gib = 4, cold_mib = 256, milliseconds = 4;
  bool json = false, list = false, peers = true;
};

std::vector<KernelBench> all_items() {
  std::vector<KernelBench> items;
  for (auto& group : {bench_products(), bench_codes(), bench_layers(), bench_attention(), bench_rows(), bench_experts(),
                      bench_sampling()}) {
    items.insert(items.end(), group.begin(), group.end());
  }
  return items;
}

// Each comma-separated part of `wanted` may be found in `text`; an empty list takes everything.
bool wants(const std::string& wanted, const std::string& text) {
  if (wanted.empty()) return true;
  for (size_t begin = 0; begin <= wanted.size();) {
    const size_t end = std::min(wanted.find(',', begin), wanted.size());
    if (end > begin && text.find(wanted.substr(begin, end - begin)) != std::string::npos) return true;
    begin = end + 1;
  }
  return false;
}

json::Object to_json(const KernelResult& r) {
  json::Object o{{"group", r.group},
                 {"shape", r.shape},
                 {"kernel", r.kernel},
                 {"us", r.seconds * 1e6},
                 {"gb_per_second", r.bytes / r.seconds / 1e9},
                 {"tflops", r.flops / r.seconds / 1e12},
                 {"ideal_us", r.ideal * 1e6},
                 {"ratio", r.ratio()}};
  if (r.peer > 0) o["peer_us"] = r.peer * 1e6;
  return o;
}

bool wants(const KernelOptions& o, const KernelBench& item) {
  return wants(o.only, item.group) && wants(o.match, item.shape) && (o.shape.empty() || item.shape == o.shape);
}

void print_head(const std::string& group) {
  fmt::print("\n{:<62} {:>10} {:>9} {:>8} {:>10} {:>6} {:>10}  {}\n", group, "us", "GB/s", "TFLOP/s", "ideal us",
             "ratio", "peer us", "kernel");
}

void print_row(const KernelResult& r) {
  fmt::print("{:<62} {:>10.2f} {:>9.1f} {:>8.1f} {:>10.2f} {:>6.2f} {:>10}  {}\n", r.shape, r.seconds * 1e6,
             r.bytes / r.seconds / 1e9, r.flops / r.seconds / 1e12, r.ideal * 1e6, r.ratio(),
             r.peer > 0 ? fmt::format("{:.2f}", r.peer * 1e6) : "", r.kernel);
  std::fflush(stdout);
}

void print_ceilings(const KernelCeilings& c, const std::string& device) {
  fmt::print("device   {}\nread     {:.1f} GB/s ({})\nproducts {:.1f} TFLOP/s ({})\n", device, c.read / 1e9,
             c.read_variant, c.product / 1e12, c.product_variant);
  if (c.launch > 0) fmt::print("launch   {:.2f} us per empty kernel of a graph\n", c.launch * 1e6);
}

int run(const KernelOptions& o) {
  const std::vector<KernelBench> items = all_items();
  if (std::none_of(items.begin(), items.end(), [&](const KernelBench& item) { return wants(o, item); })) {
    return app::report(
        make_error(ErrorCode::kInvalidArgument, "no op fits --only, --match and --shape; --list prints all"));
  }
  device::CpuOptions cpu;
  cpu.threads = o.cpu_threads;
  const auto environment = app::Environment::from(app::Environment::of_process());
  if (!environment.ok()) return app::report(environment.error());
  const auto settings = app::device_settings(o.device, cpu, *environment);
  if (!settings.ok()) return app::report(settings.error());
  auto open = app::open_device(*settings);
  if (!open.ok()) return app::report(open.error());
  const auto ceilings = measure_ceilings(*open, o.ceiling_gib);
  if (!ceilings.ok()) return app::report(ceilings.error());
  const std::string name = open->device->info().name;
  if (!o.json) print_ceilings(*ceilings, name);
  KernelBencher bencher(*open, static_cast<size_t>(o.cold_mib * static_cast<double>(1 << 20)), o.milliseconds / 1e3);
  json::Array rows;
  std::string group;
  int failures = 0;
  for (const KernelBench& item : items) {
    if (!wants(o, item)) continue;
    if (!o.json && item.group != group) print_head(item.group);
    group = item.group;
    const auto result = run_kernel_bench(bencher, item, *ceilings, o.peers ? open->library : nullptr);
    if (!result.ok()) {
      ++failures;
      fmt::print(stderr, "{}, {}: {}\n", item.group, item.shape, result.error().message);
      continue;
    }
    if (!o.json) print_row(*result);
    rows.push_back(to_json(*result));
  }
  if (o.json) {
    fmt::print("{}\n", app::json_line(json::Object{{"device", name},
                                                   {"read_gb_per_second", ceilings->read / 1e9},
                                                   {"read_variant", ceilings->read_variant},
                                                   {"product_tflops", ceilings->product / 1e12},
                                                   {"launch_us", ceilings->launch * 1e6},
                                                   {"rows", std::move(rows)}}));
  }
  return failures == 0 ? 0 : app::kFailureExit;
}

}  // namespace

int run_bench_kernels(const std::vector<std::string>& args) {
  app::Options parser("Ops by shape beside what the device can do at most, measured in the same run",
                      "tern bench kernels");
  KernelOptions o;
  parser.add_option("--device", o.device, "auto, cpu, cuda or cuda:N").capture_default_str();
  parser.add_option("--only", o.only, "Groups whose name contains one of these: products,attention,norm,experts,...");
  parser.add_option("--match", o.match, "Shapes whose name contains one of these, separated by commas");
  parser.add_option("--shape", o.shape, "The one shape of this name, as --list prints it behind the colon");
  parser.add_option("--cpu-threads", o.cpu_threads, "Threads that compute on a CPU; 0: physical cores")
      .capture_default_str();
  parser.add_option("--ceiling-gib", o.ceiling_gib, "GiB read to find the memory's bandwidth").capture_default_str();
  parser.add_option("--cold-mib", o.cold_mib, "MiB of weights or cache that take turns, beyond the last cache")
      .capture_default_str();
  parser.add_option("--milliseconds", o.milliseconds, "Of one timing; the best of five counts").capture_default_str();
  parser.add_flag("!--no-peers", o.peers, "Leaves the vendor's library out");
  parser.add_flag("--list", o.list, "Prints groups and shapes and ends");
  parser.add_flag("--json", o.json, "Prints one JSON object");
  if (const auto status = app::parse_options(parser, args)) return *status;
  if (!o.list) return run(o);
  for (const KernelBench& item : all_items()) fmt::print("{}: {}\n", item.group, item.shape);
  return 0;
}

}  // namespace tern::bench
