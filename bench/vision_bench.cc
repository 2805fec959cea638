// Vision towers on the CPU against the product ceiling measured in the same run: attention inside segments, and layers
// of PaddleOCR-VL-0.9B's tower over a page. bench_vision [--threads N] [--isa NAME] [--seconds S per row]
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "bench/results.h"
#include "device/compute_pool.h"
#include "device/device.h"
#include "kernels/cpu/ceilings/ceilings.h"
#include "kernels/cpu/isa.h"
#include "ops/vision.h"
#include "vision/tower.h"

namespace tern {
namespace {

namespace fs = std::filesystem;

struct Bench {
  std::unique_ptr<device::Device> device;
  kernels::Ceilings ceilings;
  double seconds = 0.5;

  device::Buffer memory(size_t bytes) {
    auto b = device->allocate(std::max<size_t>(bytes, 64));
    if (!b.ok()) std::exit((std::fprintf(stderr, "%s\n", b.error().message.c_str()), 1));
    return std::move(*b);
  }
};

void must(const Status& s) {
  if (!s.ok()) std::exit((std::fprintf(stderr, "%s\n", s.error().message.c_str()), 1));
}

double best_time(double seconds, const std::function<void()>& call) {
  call();
  double best = 1e9;
  const int64_t end = monotonic_ns() + static_cast<int64_t>(seconds * 1e9);
  for (int i = 0; monotonic_ns() < end || i < 2; ++i) {
    const int64_t start = monotonic_ns();
    call();
    best = std::min(best, static_cast<double>(monotonic_ns() - start) * 1e-9);
  }
  return best;
}

void row(const char* what, double s, double flops, double ceiling) {
  std::printf("%-52s %9.2f ms %8.0f GFLOP/s %5.0f %% of products\n", what, s * 1e3, flops / s * 1e-9,
              100.0 * flops / s * 1e-9 / ceiling);
  add_result({.what = what,
              .command = "bench_vision",
              .measured = s * 1e3,
              .unit = "ms",
              .reference = "products",
              .reference_value = ceiling,
              .reference_unit = "GFLOP/s",
              .ratio = flops / s * 1e-9 / ceiling});
}

void bench_attention(Bench& b, int64_t segments, int64_t length, int heads, int dim, DType product) {
  const int64_t rows = segments * length, h = int64_t{heads} * dim;
  const device::Buffer fused = b.memory(static_cast<size_t>(rows * 3 * h) * 4),
                       out = b.memory(static_cast<size_t>(rows * h) * 4);
  auto* values = reinterpret_cast<float*>(fused.data());
  for (int64_t i = 0; i < rows * 3 * h; ++i)
    values[i] = static_cast<float>((i * 2654435761u >> 7) % 2001) * 1e-3f - 1.0f;
  std::vector<int32_t> starts;
  for (int64_t i = 0; i <= segments; ++i) starts.push_back(static_cast<int32_t>(i * length));
  const device::Stream stream = b.device->stream();
  const device::Buffer space = b.memory(ops::segment_attention_workspace(stream, rows, segments, heads, dim));
  const TensorView view = tensor2(fused.data(), DType::kF32, rows, 3 * h);
  ops::SegmentAttentionParams p;
  p.q = view.columns(0, h).split(heads, dim), p.k = view.columns(h, 2 * h).split(heads, dim);
  p.v = view.columns(2 * h, 3 * h).split(heads, dim);
  p.starts = tensor1(starts.data(), DType::kI32, segments + 1);
  p.out = tensor2(out.data(), product, rows, h);
  p.scale = 0.1f, p.max_segment = static_cast<int>(length), p.product = product, p.workspace = space.data();
  const double s = best_time(b.seconds, [&] { must(ops::segment_attention(p, stream)); });
  char what[96];
  std::snprintf(what, sizeof what, "attention %lld x %lld patches, %d heads of %d, %s",
                static_cast<long long>(segments), static_cast<long long>(length), heads, dim, dtype_name(product));
  row(what, s, 4.0 * static_cast<double>(segments * length * length) * static_cast<double>(h),
      product == DType::kBF16 ? b.ceilings.dot_gflops() : b.ceilings.f32_gflops);
}

constexpr const char* kConfig = R"({"architectures":["PaddleOCRVLForConditionalGeneration"],"hidden_size":1024,
  "vision_config":{"hidden_size":1152,"intermediate_size":4304,"num_hidden_layers":2,"num_attention_heads":16,
  "image_size":384,"patch_size":14}})";

// Two of the 27 layers with patches, positions and projector.
void bench_tower(Bench& b, vision::Grid grid) {
  const fs::path folder = fs::temp_directory_path() / ("tern-bench-vision-" + std::to_string(monotonic_ns()));
  fs::create_directories(folder);
  std::ofstream(folder / "config.json") << kConfig;
  model::LoadOptions o;
  o.path = folder.string(), o.dummy = true;
  auto tower = vision::load_tower(o, *b.device);
  fs::remove_all(folder);
  if (!tower.ok()) must(tower.error());
  const vision::Tower& t = **tower;
  const int64_t rows = grid.rows();
  const device::Stream stream = b.device->stream();
  vision::TowerIndex index;
  const double host = best_time(0.05, [&] { t.index({&grid, 1}, index); });
  const device::Buffer patches = b.memory(static_cast<size_t>(rows) * 588 * 2),
                       out = b.memory(static_cast<size_t>(t.tokens(grid)) * 1024 * 2);
  const size_t bytes = t.workspace_bytes(rows, 1, stream);
  const device::Buffer space = b.memory(bytes);
  const double s = best_time(b.seconds, [&] {
    device::Arena arena(space.data(), bytes);
    must(t.encode({{&grid, 1},
                   tensor2(patches.data(), DType::kBF16, rows, 588),
                   tensor1(index.ints.data(), DType::kI32, static_cast<int64_t>(index.ints.size())),
                   tensor1(index.floats.data(), DType::kF32, static_cast<int64_t>(index.floats.size())),
                   tensor2(out.data(), DType::kBF16, t.tokens(grid), 1024),
                   stream,
                   arena}));
  });
  const double n = static_cast<double>(rows), layer = 2.0 * (4.0 * 1152 * 1152 + 2.0 * 1152 * 4304) + 4.0 * n * 1152;
  const double flops = n * (2.0 * 588 * 1152 + 2.0 * layer + 2.0 * 1152 * 4608 + 2.0 * 256 * 4608);
  char what[96];
  std::snprintf(what, sizeof what, "PaddleOCR-VL tower, 2 layers, %d x %d patches", grid.h, grid.w);
  row(what, s, flops, b.ceilings.dot_gflops());
  std::printf("  index %.2f ms on the host, workspace %.0f MB\n", host * 1e3, static_cast<double>(bytes) * 1e-6);
}

int run(int argc, char** argv) {
  device::CpuOptions options;
  Bench b;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    Isa isa;
    if (flag == "--threads") options.threads = std::atoi(argv[i + 1]);
    if (flag == "--seconds") b.seconds = std::atof(argv[i + 1]);
    if (flag == "--isa" && parse_isa(argv[i + 1], &isa)) must(set_isa(isa));
  }
  auto device = device::make_cpu_device(options);
  if (!device.ok()) must(device.error());
  b.device = std::move(*device);
  b.device->stream().pool->pin_caller();
  b.ceilings = kernels::measure_ceilings(*b.device->stream().pool, {.read_bytes = size_t{1} << 26});
  std::printf("%s; kernels %s; products bf16 %.0f, f32 %.0f GFLOP/s\n", b.device->info().name.c_str(),
              kernels::kernel_table().name, b.ceilings.bf16_gflops, b.ceilings.f32_gflops);
  bench_attention(b, 1, 4992, 16, 72, DType::kBF16);
  bench_attention(b, 1, 4992, 16, 72, DType::kF32);
  bench_attention(b, 1, 4992, 16, 80, DType::kBF16);
  bench_attention(b, 16, 256, 16, 72, DType::kBF16);
  bench_tower(b, {1, 84, 60});
  bench_tower(b, {1, 16, 16});
  return 0;
}

}  // namespace
}  // namespace tern

int main(int argc, char** argv) { return tern::run(argc, argv); }
