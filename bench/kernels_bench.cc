// Kernels of the CPU back-end against ceilings measured in the same run. A plain table: what, time, rate, share of the
// ceiling. bench_kernels [--threads N] [--isa NAME] [--seconds S per row]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "base/bf16.h"
#include "base/clock.h"
#include "bench/results.h"
#include "device/compute_pool.h"
#include "device/device.h"
#include "kernels/cpu/ceilings/ceilings.h"
#include "kernels/cpu/isa.h"
#include "ops/backend.h"

namespace tern {
namespace {

using device::Buffer;

struct Bench {
  std::unique_ptr<device::Device> device;
  kernels::Ceilings ceilings;
  double seconds = 0.3;

  device::Stream stream() { return device->stream(); }
  Buffer memory(size_t bytes) {
    auto b = device->allocate(std::max<size_t>(bytes, 64));
    if (!b.ok()) {
      std::fprintf(stderr, "%s\n", b.error().message.c_str());
      std::exit(1);
    }
    return std::move(*b);
  }
  // bf16 values of about unit size in a pattern.
  Buffer values(int64_t n) {
    Buffer b = memory(static_cast<size_t>(n) * 2);
    auto* p = reinterpret_cast<bf16*>(b.data());
    for (int64_t i = 0; i < n; ++i) p[i] = to_bf16(static_cast<float>((i * 2654435761u >> 7) % 2001) * 1e-3f - 1.0f);
    return b;
  }
};

void must(const Status& s) {
  if (s.ok()) return;
  std::fprintf(stderr, "%s\n", s.error().message.c_str());
  std::exit(1);
}

// The least time of one call, over about `seconds`, after one to warm up.
double best_time(double seconds, const std::function<void(int)>& call) {
  call(0);
  double best = 1e9;
  const int64_t end = monotonic_ns() + static_cast<int64_t>(seconds * 1e9);
  for (int i = 1; monotonic_ns() < end || i < 4; ++i) {
    const int64_t start = monotonic_ns();
    call(i);
    best = std::min(best, static_cast<double>(monotonic_ns() - start) * 1e-9);
  }
  return best;
}

void row(const char* what, double seconds, double bytes, double flops, const kernels::Ceilings& c, bool by_bytes) {
  const double gbs = bytes / seconds * 1e-9, gflops = flops / seconds * 1e-9;
  std::printf("%-44s %10.1f us %8.1f GB/s %9.1f GFLOP/s   %5.2f of %s\n", what, seconds * 1e6, gbs, gflops,
              by_bytes ? gbs / c.read_gbs : gflops / c.dot_gflops(), by_bytes ? "read bandwidth" : "dot-product peak");
  add_result({.what = what,
              .command = "bench_kernels",
              .measured = seconds * 1e6,
              .unit = "us",
              .reference = by_bytes ? "reading memory" : "products",
              .reference_value = by_bytes ? c.read_gbs : c.dot_gflops(),
              .reference_unit = by_bytes ? "GB/s" : "GFLOP/s",
              .ratio = by_bytes ? gbs / c.read_gbs : gflops / c.dot_gflops()});
  std::fflush(stdout);
}

void bench_linear(Bench& b, const char* name, int64_t n, int64_t k) {
  const auto* format = ops::find_weight_format(device::DeviceKind::kCpu, "bf16");
  // Enough copies that none of them is still in a cache when its turn comes again.
  const auto bytes = static_cast<int64_t>(format->packed_bytes(n, k));
  const int64_t copies = std::max<int64_t>(1, (int64_t{320} << 20) / bytes);
  std::vector<ops::PackedWeight> weights(static_cast<size_t>(copies));
  const Buffer source = b.values(n * k);
  for (auto& w : weights) {
    w.format = format, w.n = n, w.k = k;
    w.data = b.memory(static_cast<size_t>(bytes));
    must(format->pack(tensor2(source.data(), DType::kBF16, n, k), 0, n, k, w.data.data()));
  }
  for (const int64_t t : {1, 8, 32, 1024}) {
    if (t == 1024 && n > 100000) continue;
    const Buffer x = b.values(t * k), out = b.memory(static_cast<size_t>(t * n) * 4);
    const DType out_type = n > 100000 ? DType::kF32 : DType::kBF16;
    const double s = best_time(b.seconds, [&](int i) {
      const ops::LinearParams p{tensor2(x.data(), DType::kBF16, t, k),
                                &weights[static_cast<size_t>(i % copies)],
                                {},
                                tensor2(out.data(), out_type, t, n)};
      must(ops::linear(p, b.stream()));
    });
    const std::string what =
        std::string("linear ") + name + " " + std::to_string(k) + "x" + std::to_string(n) + " T=" + std::to_string(t);
    row(what.c_str(), s, static_cast<double>(n * k * 2), 2.0 * static_cast<double>(t * n * k), b.ceilings, t <= 8);
  }
}

// `sequences` of `context` tokens each, of which the last `queries` are asked for. 16 heads over 8 KV heads of 128.
void bench_attention(Bench& b, int sequences, int context, int queries) {
  constexpr int kHeads = 16, kKvHeads = 8, kDim = 128, kBlock = 64;
  KvSpec spec;
  spec.arrangement = KvArrangement::kCpuPacked;
  spec.layers = 1, spec.kv_heads = kKvHeads, spec.head_dim_k = spec.head_dim_v = kDim, spec.block_size = kBlock;
  const int blocks = (context + kBlock - 1) / kBlock;
  const size_t layer = spec.layer_block_bytes() * static_cast<size_t>(blocks * sequences + 1);
  const size_t layers = std::max<size_t>(1, (size_t{200} << 20) / layer);
  const Buffer cache = b.values(static_cast<int64_t>(layer * layers / 2));
  std::vector<int32_t> table, start{0}, lens;
  for (int r = 0; r < sequences; ++r) {
    for (int i = 0; i < blocks; ++i) table.push_back(1 + r * blocks + i);
    start.push_back((r + 1) * queries);
    lens.push_back(context);
  }
  const int64_t t = int64_t{sequences} * queries;
  const Buffer q = b.values(t * kHeads * kDim), out = b.memory(static_cast<size_t>(t * kHeads * kDim) * 2);
  const Buffer workspace = b.memory(ops::attention_workspace(b.stream(), static_cast<int>(t), kHeads, kDim));
  ops::AttentionParams p;
  p.q = tensor2(q.data(), DType::kBF16, t, kHeads * kDim).split(kHeads, kDim);
  p.block_table = tensor2(table.data(), DType::kI32, sequences, blocks);
  p.row_start = tensor1(start.data(), DType::kI32, sequences + 1);
  p.context_len = tensor1(lens.data(), DType::kI32, sequences);
  p.out = tensor2(out.data(), DType::kBF16, t, kHeads * kDim);
  p.scale = 0.088f;
  p.workspace = workspace.data();
  const double s = best_time(b.seconds, [&](int i) {
    p.cache = {cache.data() + layer * (static_cast<size_t>(i) % layers), spec.layer_block_bytes(), spec};
    must(ops::attention(p, b.stream()));
  });
  const double pairs = static_cast<double>(sequences) *
                       (static_cast<double>(queries) * (context - queries) + 0.5 * queries * (queries + 1.0));
  char what[96];
  std::snprintf(what, sizeof what, "attention %d x context %d, %d quer%s", sequences, context, queries,
                queries == 1 ? "y" : "ies");
  row(what, s, static_cast<double>(sequences) * context * kKvHeads * kDim * 4.0, pairs * kHeads * kDim * 4.0,
      b.ceilings, queries == 1);
}

// The light ops between the products, for 1,024 tokens of the same shape.
void bench_rows(Bench& b) {
  constexpr int64_t kT = 1024, kH = 1024, kI = 3072, kHeads = 16, kKv = 8, kDim = 128;
  const Buffer x = b.values(kT * 2 * kI), y = b.values(kT * 2 * kI), w = b.values(kI);
  const auto time = [&](const char* what, double bytes, const std::function<void(int)>& f) {
    row(what, best_time(b.seconds / 2, f), bytes, 0, b.ceilings, true);
  };
  time("rms_norm + residual, T=1024 H=1024", kT * kH * 2 * 4, [&](int) {
    must(ops::rms_norm({tensor2(x.data(), DType::kBF16, kT, kH), tensor2(y.data(), DType::kBF16, kT, kH),
                        tensor1(w.data(), DType::kBF16, kH), tensor2(x.data(), DType::kBF16, kT, kH), 1e-6f},
                       b.stream()));
  });
  time("silu_mul, T=1024 I=3072", kT * kI * 2 * 3, [&](int) {
    must(ops::silu_mul({tensor2(x.data(), DType::kBF16, kT, 2 * kI), tensor2(y.data(), DType::kBF16, kT, kI)},
                       b.stream()));
  });
  KvSpec spec;
  spec.arrangement = KvArrangement::kCpuPacked;
  spec.layers = 1, spec.kv_heads = kKv, spec.head_dim_k = spec.head_dim_v = kDim;
  const Buffer cache = b.memory(spec.layer_block_bytes() * (kT / 64 + 1));
  std::vector<int64_t> slots(kT);
  for (int64_t i = 0; i < kT; ++i) slots[static_cast<size_t>(i)] = 64 + i;
  const Buffer cos = b.memory(kT * kDim * 2), sin = b.memory(kT * kDim * 2);
  ops::QkvPrepareParams p;
  p.qkv = tensor2(x.data(), DType::kBF16, kT, (kHeads + 2 * kKv) * kDim);
  p.heads = kHeads, p.kv_heads = kKv, p.head_dim = kDim;
  p.q_norm = p.k_norm = tensor1(w.data(), DType::kBF16, kDim);
  p.cos = tensor2(cos.data(), DType::kF32, kT, kDim / 2), p.sin = tensor2(sin.data(), DType::kF32, kT, kDim / 2);
  p.cache = {cache.data(), spec.layer_block_bytes(), spec};
  p.slot_mapping = tensor1(slots.data(), DType::kI64, kT);
  time("qkv_prepare, T=1024, 16 + 8 + 8 heads of 128", kT * (kHeads + 2 * kKv) * kDim * 2.0 * 2,
       [&](int) { must(ops::qkv_prepare(p, b.stream())); });
}

// The whole chain of ops of a Qwen3-0.6B step with dummy weights: what an engine can reach at most with these kernels.
class Step {
 public:
  explicit Step(Bench& b) : b_(b) {
    for (int l = 0; l < kLayers; ++l) {
      layers_.push_back({pack(4096, kH), pack(kH, 2048), pack(2 * kI, kH), pack(kH, kI)});
      weight_bytes_ += 2.0 * (4096 * kH + kH * 2048 + 2 * kI * kH + kH * kI);
    }
    head_ = pack(kV, kH);
    spec_.arrangement = KvArrangement::kCpuPacked;
    spec_.layers = kLayers, spec_.kv_heads = 8, spec_.head_dim_k = spec_.head_dim_v = 128;
    cache_ = b.memory(spec_.block_bytes() * 33);
    norm_ = b.values(kH);
    for (Buffer* x : {&x_, &r_}) *x = b.values(kT * kH);
    qkv_ = b.values(kT * 4096), attn_ = b.values(kT * 2048), gate_up_ = b.values(kT * 2 * kI), act_ = b.values(kT * kI);
    logits_ = b.memory(kV * 4), cos_ = b.memory(kT * 64 * 4), sin_ = b.memory(kT * 64 * 4);
    workspace_ = b.memory(ops::attention_workspace(b.stream(), kT, 16, 128));
  }

  void run(int64_t t, int context) {
    const auto s = b_.stream();
    const auto view = [](const Buffer& m, int64_t rows, int64_t cols) {
      return tensor2(m.data(), DType::kBF16, rows, cols);
    };
    std::vector<int64_t> slots;
    for (int64_t i = 0; i < t; ++i) slots.push_back(64 + context - t + i);
    std::vector<int32_t> table, start{0, static_cast<int32_t>(t)}, lens{context};
    for (int i = 1; i <= 32; ++i) table.push_back(i);
    const TensorView w = tensor1(norm_.data(), DType::kBF16, kH), head_norm = tensor1(norm_.data(), DType::kBF16, 128);
    for (int l = 0; l < kLayers; ++l) {
      const Layer& layer = layers_[static_cast<size_t>(l)];
      const KvLayerView cache{cache_.data() + static_cast<size_t>(l) * spec_.layer_block_bytes(), spec_.block_bytes(),
                              spec_};
      must(ops::rms_norm({view(x_, t, kH), view(r_, t, kH), w, view(x_, t, kH), 1e-6f}, s));
      must(ops::linear({view(x_, t, kH), &layer.qkv, {}, view(qkv_, t, 4096)}, s));
      ops::QkvPrepareParams p;
      p.qkv = view(qkv_, t, 4096), p.heads = 16, p.kv_heads = 8, p.head_dim = 128, p.q_norm = p.k_norm = head_norm;
      p.cos = tensor2(cos_.data(), DType::kF32, t, 64), p.sin = tensor2(sin_.data(), DType::kF32, t, 64);
      p.cache = cache, p.slot_mapping = tensor1(slots.data(), DType::kI64, t);
      must(ops::qkv_prepare(p, s));
      ops::AttentionParams a;
      a.q = view(qkv_, t, 4096).columns(0, 2048).split(16, 128), a.cache = cache;
      a.block_table = tensor2(table.data(), DType::kI32, 1, 32), a.row_start = tensor1(start.data(), DType::kI32, 2);
      a.context_len = tensor1(lens.data(), DType::kI32, 1), a.out = view(attn_, t, 2048), a.scale = 0.088f;
      a.workspace = workspace_.data();
      must(ops::attention(a, s));
      must(ops::linear({view(attn_, t, 2048), &layer.o, {}, view(x_, t, kH)}, s));
      must(ops::rms_norm({view(x_, t, kH), view(r_, t, kH), w, view(x_, t, kH), 1e-6f}, s));
      must(ops::linear({view(x_, t, kH), &layer.gate_up, {}, view(gate_up_, t, 2 * kI)}, s));
      must(ops::silu_mul({view(gate_up_, t, 2 * kI), view(act_, t, kI)}, s));
      must(ops::linear({view(act_, t, kI), &layer.down, {}, view(x_, t, kH)}, s));
    }
    must(ops::linear({view(x_, 1, kH), &head_, {}, tensor2(logits_.data(), DType::kF32, 1, kV)}, s));
  }

  void report(int64_t t, int context) {
    const double s = best_time(b_.seconds * 4, [&](int) { run(t, context); });
    const double weights = weight_bytes_ + 2.0 * kV * kH;
    const double pairs =
        static_cast<double>(t) * (static_cast<double>(context) - static_cast<double>(t)) + 0.5 * t * (t + 1.0);
    const double flops = weight_bytes_ * static_cast<double>(t) + 2.0 * kV * kH + pairs * 16 * 128 * 4.0 * kLayers;
    char what[80];
    std::snprintf(what, sizeof what, "whole step, %d token%s, context %d", static_cast<int>(t), t == 1 ? "" : "s",
                  context);
    row(what, s, weights, flops, b_.ceilings, t == 1);
  }

 private:
  static constexpr int kLayers = 28;
  static constexpr int64_t kH = 1024, kI = 3072, kV = 151936, kT = 1024;
  struct Layer {
    ops::PackedWeight qkv, o, gate_up, down;
  };
  ops::PackedWeight pack(int64_t n, int64_t k) {
    const auto* format = ops::find_weight_format(device::DeviceKind::kCpu, "bf16");
    if (source_.bytes() == 0) source_ = b_.values(2 * kI * kH);
    ops::PackedWeight w;
    w.format = format, w.n = n, w.k = k;
    w.data = b_.memory(format->packed_bytes(n, k));
    for (int64_t first = 0; first < n; first += 1024) {
      const int64_t rows = std::min<int64_t>(1024, n - first);
      must(format->pack(tensor2(source_.data(), DType::kBF16, rows, k), first, n, k, w.data.data()));
    }
    return w;
  }

  Bench& b_;
  Buffer source_, cache_, norm_, x_, r_, qkv_, attn_, gate_up_, act_, logits_, cos_, sin_, workspace_;
  std::vector<Layer> layers_;
  ops::PackedWeight head_;
  KvSpec spec_;
  double weight_bytes_ = 0;
};

void bench_step(Bench& b) {
  Step step(b);
  step.report(1, 128);
  step.report(1, 1024);
  step.report(1024, 1024);
  step.report(512, 2048);
}

void bench_pack(Bench& b) {
  const auto* format = ops::find_weight_format(device::DeviceKind::kCpu, "bf16");
  constexpr int64_t kN = 32768, kK = 1024;
  const Buffer source = b.values(kN * kK), packed = b.memory(format->packed_bytes(kN, kK));
  const double s = best_time(b.seconds, [&](int) {
    b.stream().pool->parallel(16, [&](int part) {
      const int64_t rows = kN / 16, first = part * rows;
      must(format->pack(tensor2(source.data() + first * kK * 2, DType::kBF16, rows, kK), first, kN, kK, packed.data()));
    });
  });
  row("pack bf16 1024x32768", s, kN * kK * 2.0, 0, b.ceilings, true);
}

int run(int argc, char** argv) {
  device::CpuOptions options;
  Bench b;
  std::string only;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    Isa isa;
    if (flag == "--threads") {
      options.threads = std::atoi(argv[i + 1]);
    } else if (flag == "--seconds") {
      b.seconds = std::atof(argv[i + 1]);
    } else if (flag == "--only") {
      only = argv[i + 1];
    } else if (flag == "--isa" && parse_isa(argv[i + 1], &isa)) {
      must(set_isa(isa));
    } else {
      std::fprintf(
          stderr,
          "usage: bench_kernels [--threads N] [--isa NAME] [--seconds S] [--only linear|attention|rows|pack|step]\n");
      return 2;
    }
  }
  auto device = device::make_cpu_device(options);
  if (!device.ok()) must(device.error());
  b.device = std::move(*device);
  b.stream().pool->pin_caller();
  std::printf("%s; kernels %s\n", b.device->info().name.c_str(), kernels::kernel_table().name);
  const auto measure = [&] {
    b.ceilings = kernels::measure_ceilings(*b.stream().pool);
    std::printf("ceilings, %d threads: read %.1f GB/s (%s), bf16 %.0f GFLOP/s (%s), f32 %.0f GFLOP/s (%s)\n",
                b.ceilings.threads, b.ceilings.read_gbs, b.ceilings.read_variant.c_str(), b.ceilings.bf16_gflops,
                b.ceilings.bf16_variant.c_str(), b.ceilings.f32_gflops, b.ceilings.f32_variant.c_str());
  };
  measure();
  if (only.empty() || only == "linear") {
    bench_linear(b, "qkv", 4096, 1024);
    bench_linear(b, "o", 1024, 2048);
    bench_linear(b, "gate_up", 6144, 1024);
    bench_linear(b, "down", 1024, 3072);
    bench_linear(b, "lm_head", 151936, 1024);
  }
  if (only.empty() || only == "attention") {
    bench_attention(b, 1, 1024, 1);
    bench_attention(b, 1, 8192, 1);
    bench_attention(b, 8, 1024, 1);
    bench_attention(b, 32, 1024, 1);
    bench_attention(b, 1, 1024, 1024);
    bench_attention(b, 1, 4096, 1024);
  }
  if (only.empty() || only == "rows") bench_rows(b);
  if (only.empty() || only == "pack") bench_pack(b);
  if (only.empty() || only == "step") bench_step(b);
  measure();
  return 0;
}

}  // namespace
}  // namespace tern

int main(int argc, char** argv) { return tern::run(argc, argv); }
