#include "bench/kernels.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "base/bf16.h"
#include "base/clock.h"
#include "kernels/cpu/ceilings/ceilings.h"

namespace tern::bench {
namespace {

constexpr size_t kPattern = 1'000'003;  // random values that fill everything, again and again; no row's multiple
constexpr int kRepeats = 5;             // of a timing; the best counts
constexpr int kMostLaunches = 256;      // of one graph

double now() { return static_cast<double>(monotonic_ns()) / 1e9; }

Expected<double> measured(const app::OpenedDevice& open, const device::MeasureRequest& request, std::string* variant) {
  if (open.library == nullptr || open.library->measure == nullptr) {
    return make_error(ErrorCode::kUnsupported, "this device measures nothing");
  }
  TERN_ASSIGN_OR_RETURN(const device::Measured m, open.library->measure(request, open.device->stream()));
  if (variant != nullptr) *variant = m.variant;
  return m.value;
}

}  // namespace

Expected<KernelCeilings> measure_ceilings(app::OpenedDevice& open, double gib, DType type) {
  KernelCeilings c;
  const auto bytes = static_cast<size_t>(gib * static_cast<double>(size_t{1} << 30));
  if (open.library == nullptr) {
    kernels::CeilingOptions options;
    options.read_bytes = bytes;
    const kernels::Ceilings host = kernels::measure_ceilings(*open.device->stream().pool, options);
    const bool half = type == DType::kBF16 && host.bf16_gflops > 0;
    c.read = host.read_gbs * 1e9, c.product = (half ? host.bf16_gflops : host.f32_gflops) * 1e9;
    c.read_variant = host.read_variant;
    c.product_variant = half ? host.bf16_variant : host.f32_variant;
    return c;
  }
  TERN_ASSIGN_OR_RETURN(c.read, measured(open, {.kind = device::MeasureKind::kRead, .bytes = bytes}, &c.read_variant));
  TERN_ASSIGN_OR_RETURN(c.launch, measured(open, {.kind = device::MeasureKind::kLaunch}, nullptr));
  constexpr int64_t kSide = 8192;
  const auto seconds = measured(open, {.kind = device::MeasureKind::kProduct, .rows = kSide, .n = kSide, .k = kSide},
                                &c.product_variant);
  // Without the vendor's library there is no such ceiling: ratios are then of bytes alone.
  if (seconds.ok()) {
    c.product = 2.0 * static_cast<double>(kSide) * kSide * kSide / *seconds;
  } else {
    c.product_variant = seconds.error().message;
  }
  return c;
}

KernelBencher::KernelBencher(app::OpenedDevice& open, size_t cold_bytes, double seconds)
    : open_(open), cold_bytes_(cold_bytes), seconds_(seconds), normal_(kPattern) {
  std::mt19937_64 random(1);
  std::normal_distribution<float> normal;
  for (float& v : normal_) v = normal(random);
}

int KernelBencher::turns(double bytes_of_one) const {
  return static_cast<int>(std::clamp(static_cast<double>(cold_bytes_) / std::max(bytes_of_one, 1.0) + 1, 1.0, 64.0));
}

Expected<char*> KernelBencher::take(size_t bytes) {
  TERN_ASSIGN_OR_RETURN(device::Buffer buffer, device().allocate(std::max<size_t>(bytes, 64)));
  memory_.push_back(std::move(buffer));
  return memory_.back().data();
}

Expected<char*> KernelBencher::bytes(const void* host, size_t size) {
  TERN_ASSIGN_OR_RETURN(char* to, take(size));
  device().copy_to_device(to, host, size, stream());
  TERN_RETURN_IF_ERROR(device().synchronize(stream()));
  return to;
}

Expected<TensorView> KernelBencher::ints(const std::vector<int32_t>& host) {
  TERN_ASSIGN_OR_RETURN(int32_t * to, values(host));
  return tensor1(to, DType::kI32, static_cast<int64_t>(host.size()));
}

Expected<TensorView> KernelBencher::zeros(DType type, int64_t rows, int64_t cols) {
  TERN_ASSIGN_OR_RETURN(char* to, take(static_cast<size_t>(rows * cols) * dtype_bytes(type)));
  return tensor2(to, type, rows, cols);
}

Expected<TensorView> KernelBencher::random(DType type, int64_t rows, int64_t cols, float sigma) {
  TERN_ASSIGN_OR_RETURN(TensorView t, zeros(type, rows, cols));
  TERN_RETURN_IF_ERROR(fill(t.as<char>(), static_cast<size_t>(rows * cols) * dtype_bytes(type), type, sigma));
  return t;
}

Status KernelBencher::fill(char* to, size_t size, DType type, float sigma) {
  const size_t count = std::min(kPattern, size / dtype_bytes(type));
  std::vector<float> floats(type == DType::kBF16 ? 0 : count);
  std::vector<bf16> halves(type == DType::kBF16 ? count : 0);
  for (size_t i = 0; i < floats.size(); ++i) floats[i] = sigma * normal_[i];
  for (size_t i = 0; i < halves.size(); ++i) halves[i] = to_bf16(sigma * normal_[i]);
  const void* from = type == DType::kBF16 ? static_cast<const void*>(halves.data()) : floats.data();
  const size_t piece = count * dtype_bytes(type);
  for (size_t at = 0; at < size; at += piece) {
    device().copy_to_device(to + at, from, std::min(piece, size - at), stream());
  }
  return device().synchronize(stream());
}

Expected<ops::PackedWeight> KernelBencher::empty_weight(int64_t n, int64_t k, const char* format) {
  ops::PackedWeight w;
  TERN_ASSIGN_OR_RETURN(const size_t bytes, weight_bytes(n, k, format));
  w.format = ops::find_weight_format(stream().kind, format), w.n = n, w.k = k;
  TERN_ASSIGN_OR_RETURN(w.data, device().allocate(bytes));
  return w;
}

Expected<size_t> KernelBencher::weight_bytes(int64_t n, int64_t k, const char* format) {
  const ops::WeightFormat* found = ops::find_weight_format(stream().kind, format);
  if (found == nullptr)
    return make_error(ErrorCode::kUnsupported, fmt::format("this device has no {} weights", format));
  return found->packed_bytes(n, k);
}

Expected<std::span<const ops::PackedWeight>> KernelBencher::weights(int64_t count, int64_t n, int64_t k,
                                                                    const char* format) {
  // Whole blocks of scales, whatever the format.
  const int64_t slice = std::min(n, std::max<int64_t>((int64_t{4} << 20) / k / 128, 1) * 128);
  std::vector<bf16> rows(static_cast<size_t>(slice * k));
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = to_bf16(0.05f * normal_[i % kPattern]);
  auto list = std::make_unique<std::vector<ops::PackedWeight>>(static_cast<size_t>(count));
  std::vector<char> first;
  for (ops::PackedWeight& w : *list) {
    TERN_ASSIGN_OR_RETURN(w, empty_weight(n, k, format));
    if (!first.empty()) {
      device().copy_to_device(w.data.data(), first.data(), first.size(), stream());
      continue;
    }
    for (int64_t begin = 0; begin < n; begin += slice) {
      const TensorView source = tensor2(rows.data(), DType::kBF16, std::min(slice, n - begin), k);
      TERN_RETURN_IF_ERROR(w.format->pack(source, begin, n, k, w.data.data()));
    }
    if (count == 1) break;
    first.resize(w.format->packed_bytes(n, k));
    device().copy_to_host(first.data(), w.data.data(), first.size(), stream());
    TERN_RETURN_IF_ERROR(device().synchronize(stream()));
  }
  TERN_RETURN_IF_ERROR(device().synchronize(stream()));
  TERN_RETURN_IF_ERROR(device().load_kernels());  // with the memory that these weights want
  weights_.push_back(std::move(list));
  return std::span<const ops::PackedWeight>(*weights_.back());
}

Expected<const ops::PackedWeight*> KernelBencher::weight_of(const std::vector<bf16>& rows, int64_t n, int64_t k,
                                                            const char* format) {
  TERN_ASSIGN_OR_RETURN(ops::PackedWeight w, empty_weight(n, k, format));
  const TensorView source = tensor2(const_cast<bf16*>(rows.data()), DType::kBF16, n, k);
  TERN_RETURN_IF_ERROR(w.format->pack(source, 0, n, k, w.data.data()));
  weights_.push_back(std::make_unique<std::vector<ops::PackedWeight>>());
  weights_.back()->push_back(std::move(w));
  return weights_.back()->data();
}

void KernelBencher::clear() {
  weights_.clear();
  memory_.clear();
}

std::string KernelBencher::kernel() const {
  if (open_.library == nullptr || open_.library->last_kernel == nullptr) return "";
  return open_.library->last_kernel(open_.device->stream());
}

Status KernelBencher::run_turns(const KernelCase& c, int count) {
  for (int i = 0; i < count; ++i) TERN_RETURN_IF_ERROR(c.run(i % c.turns));
  return {};
}

Expected<double> KernelBencher::seconds_of(const KernelCase& c) {
  // What is learned at the first call (an algorithm, an attribute) stays out of the graph and the time.
  TERN_RETURN_IF_ERROR(run_turns(c, c.turns));
  TERN_RETURN_IF_ERROR(device().synchronize(stream()));
  double begin = now();
  TERN_RETURN_IF_ERROR(run_turns(c, c.turns));
  TERN_RETURN_IF_ERROR(device().synchronize(stream()));
  const double rough = std::max((now() - begin) / c.turns, 1e-7);
  std::unique_ptr<device::Graph> graph;
  const int rounds = static_cast<int>(std::clamp(seconds_ / rough / c.turns, 1.0, double{kMostLaunches} / c.turns));
  const int launches = std::max(rounds, 1) * c.turns;
  if (device().has_graphs()) {
    TERN_RETURN_IF_ERROR(device().begin_capture(stream()));
    const Status captured = run_turns(c, launches);
    TERN_ASSIGN_OR_RETURN(graph, device().end_capture(stream()));
    TERN_RETURN_IF_ERROR(captured);
  }
  const auto once = [&]() { return graph != nullptr ? graph->launch(stream()) : run_turns(c, launches); };
  double best = 0;
  int replays = 1;
  for (int i = 0; i <= kRepeats; ++i) {
    begin = now();
    for (int j = 0; j < replays; ++j) TERN_RETURN_IF_ERROR(once());
    TERN_RETURN_IF_ERROR(device().synchronize(stream()));
    const double whole = now() - begin, seconds = whole / replays / launches;
    // The first round warms up and says how many replays make the wait at the end small.
    if (i == 0) replays = static_cast<int>(std::clamp(seconds_ / std::max(whole, 1e-6), 1.0, 200.0));
    if (i > 0 && (best == 0 || seconds < best)) best = seconds;
  }
  return best;
}

Expected<KernelResult> run_kernel_bench(KernelBencher& bencher, const KernelBench& item, const KernelCeilings& ceilings,
                                        const device::CudaLibrary* peers) {
  KernelResult r;
  r.group = item.group, r.shape = item.shape;
  {
    auto made = item.make(bencher);
    if (!made.ok()) {
      bencher.clear();
      return std::move(made).error();
    }
    const auto seconds = bencher.seconds_of(*made);
    r.kernel = bencher.kernel(), r.bytes = made->bytes, r.flops = made->flops;
    const device::MeasureRequest peer = made->peer;
    bencher.clear();
    if (!seconds.ok()) return seconds.error();
    r.seconds = *seconds;
    if (peers != nullptr && peers->measure != nullptr && peer.rows > 0) {
      if (const auto theirs = peers->measure(peer, bencher.stream()); theirs.ok()) r.peer = theirs->value;
    }
  }
  if (ceilings.read > 0) r.ideal = r.bytes / ceilings.read;
  if (ceilings.product > 0) r.ideal = std::max(r.ideal, r.flops / ceilings.product);
  return r;
}

}  // namespace tern::bench
