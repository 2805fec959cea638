// tern bench ranks: what ranks exchange in a step, as graphs, by size.
#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "app/config/device_settings.h"
#include "app/flags/json_text.h"
#include "app/options.h"
#include "app/report.h"
#include "base/clock.h"
#include "bench/bench.h"
#include "ops/collective.h"

namespace tern::bench {
namespace {

struct Options {
  std::string device = "cuda";
  int ranks = 2, width = 4096, repeats = 20;
  bool json = false;
};
constexpr int kCalls = 64;  // of one graph
constexpr int kRows[] = {1, 2, 4, 8, 16, 32, 64, 100, 128, 512, 2048, 8192};

struct Group {
  std::vector<app::OpenedDevice> devices;
  std::unique_ptr<device::CommunicatorGroup> group;
};

Expected<Group> open_group(const Options& o) {
  TERN_ASSIGN_OR_RETURN(const auto environment, app::Environment::from(app::Environment::of_process()));
  TERN_ASSIGN_OR_RETURN(app::DeviceSettings settings, app::device_settings(o.device, {}, environment));
  Group g;
  std::vector<device::Device*> devices;
  for (int r = 0; r < o.ranks; ++r, ++settings.cuda.ordinal) {
    settings.cuda.blas_cache_file.clear();
    TERN_ASSIGN_OR_RETURN(app::OpenedDevice device, app::open_device(settings));
    if (device.library == nullptr) return make_error(ErrorCode::kUnsupported, "ranks are timed on GPUs", "device");
    devices.push_back(device.device.get());
    g.devices.push_back(std::move(device));
  }
  TERN_ASSIGN_OR_RETURN(g.group, g.devices[0].library->make_communicators(devices));
  return g;
}

// One rank: both graphs, then their replays; the times of the first rank count.
struct Times {
  double sum = 0, sum_norm = 0;  // seconds of a call
};
Status time_rank(const Options& o, device::Device& device, const device::Communicator& c, int64_t rows, Times& times) {
  TERN_RETURN_IF_ERROR(device.bind_thread());
  const device::Stream stream = device.stream();
  const int64_t n = rows * o.width;
  const auto floats = static_cast<size_t>(n) * sizeof(float);
  TERN_ASSIGN_OR_RETURN(device::Buffer memory, device.allocate(3 * floats + static_cast<size_t>(o.width) * 4));
  char* const at = memory.data();
  const TensorView x = tensor2(at, DType::kF32, rows, o.width);
  ops::RmsNormParams norm;
  norm.x = x, norm.residual = tensor2(at + floats, DType::kF32, rows, o.width);
  norm.out = tensor2(at + 2 * floats, DType::kBF16, rows, o.width);
  norm.weight = tensor1(at + 3 * floats, DType::kF32, o.width);
  for (const bool normed : {false, true}) {
    const auto calls = [&](int count) -> Status {
      for (int i = 0; i < count; ++i) {
        TERN_RETURN_IF_ERROR(normed ? ops::all_reduce_norm({{c, x}, norm}, stream) : ops::all_reduce({c, x}, stream));
      }
      return {};
    };
    TERN_RETURN_IF_ERROR(calls(1));
    TERN_RETURN_IF_ERROR(device.synchronize(stream));
    TERN_RETURN_IF_ERROR(device.begin_capture(stream));
    const Status given = calls(kCalls);
    TERN_ASSIGN_OR_RETURN(const auto graph, device.end_capture(stream));
    TERN_RETURN_IF_ERROR(given);
    double best = 1e9;
    for (int i = 0; i < o.repeats; ++i) {
      const int64_t begin = monotonic_ns();
      TERN_RETURN_IF_ERROR(graph->launch(stream));
      TERN_RETURN_IF_ERROR(device.synchronize(stream));
      best = std::min(best, static_cast<double>(monotonic_ns() - begin) * 1e-9 / kCalls);
    }
    (normed ? times.sum_norm : times.sum) = best;
  }
  return {};
}

Status bench_ranks(const Options& o) {
  TERN_ASSIGN_OR_RETURN(const Group g, open_group(o));
  json::Array lines;
  for (const int rows : kRows) {
    std::vector<Times> times(g.devices.size());
    std::vector<Status> statuses(g.devices.size());
    std::vector<std::thread> threads;
    for (size_t r = 0; r < g.devices.size(); ++r) {
      threads.emplace_back([&, r] {
        statuses[r] = time_rank(o, *g.devices[r].device, g.group->of(static_cast<int>(r)), rows, times[r]);
        if (!statuses[r].ok()) g.group->fail();
      });
    }
    for (std::thread& t : threads) t.join();
    for (Status& s : statuses) TERN_RETURN_IF_ERROR(std::move(s));
    const auto bytes = static_cast<int64_t>(rows) * o.width * 4;
    if (!o.json) {
      fmt::print("{:6} rows, {:9} bytes: sum {:8.2f} us, with residual and norm {:8.2f} us\n", rows, bytes,
                 times[0].sum * 1e6, times[0].sum_norm * 1e6);
    }
    lines.push_back(json::Object{{"rows", rows},
                                 {"bytes", bytes},
                                 {"all_reduce_us", times[0].sum * 1e6},
                                 {"all_reduce_norm_us", times[0].sum_norm * 1e6}});
  }
  if (o.json) {
    const json::Object all{
        {"device", g.devices[0].device->info().name}, {"ranks", o.ranks}, {"width", o.width}, {"rows", lines}};
    fmt::print("{}\n", app::json_line(all));
  }
  return {};
}

}  // namespace

int run_bench_ranks(const std::vector<std::string>& args) {
  app::Options parser("Sums over ranks on several GPUs, by size", "tern bench ranks");
  Options o;
  parser.add_option("--device", o.device, "cuda or cuda:N, the first of the GPUs").capture_default_str();
  parser.add_option("--ranks", o.ranks, "GPUs").capture_default_str().range(2, 8);
  parser.add_option("--width", o.width, "Values of a row").capture_default_str().range(8, 1 << 16);
  parser.add_option("--repeats", o.repeats, "Runs; the best is printed").capture_default_str().range(1, 10000);
  parser.add_flag("--json", o.json, "One JSON object instead of text");
  if (const auto status = app::parse_options(parser, args)) return *status;
  const Status status = bench_ranks(o);
  return status.ok() ? 0 : app::report(status.error());
}

}  // namespace tern::bench
