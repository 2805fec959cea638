// A chain (cuda/fusion/chain.h): the products and norms of a layer deferred and run together, against the CPU one after
// another.
#include <cstring>

#include "cuda/tests/harness.h"
#include "ops/deferral.h"
#include "ops/linear.h"
#include "ops/norm.h"
#include "ops/rope.h"

namespace tern::cuda_test {
namespace {

struct Layer {
  int64_t rows, mixed, hidden, inner, next;  // widths
  bool bias = false;                         // of gate, up and the last product
  DType norm_type = DType::kBF16;
  bool second_norm = true;  // false: deferral ends with the down product
};

// One layer's weights and values on both sides.
struct Bench {
  Bench(Context& c, const Layer& l)
      : mixed(c, DType::kBF16, {l.rows, l.mixed}, 8),
        residual(c, DType::kF32, {l.rows, l.hidden}),
        delta(c, DType::kF32, {l.rows, l.hidden}),
        x(c, DType::kBF16, {l.rows, l.hidden}),
        between(c, DType::kF32, {l.rows, 2 * l.inner}),
        gated(c, DType::kBF16, {l.rows, l.inner}),
        out(c, DType::kF32, {l.rows, l.next}, 8),
        norm(c, l.norm_type, {l.hidden}),
        bias(c, DType::kF32, {2 * l.inner}),
        last_bias(c, DType::kF32, {l.next}) {
    mixed.random(1), norm.random(2), bias.random(3), last_bias.random(4);
    const auto pack = [&](int64_t n, int64_t k, uint32_t seed) {
      static auto host = device::make_cpu_device({});
      Mirror source(c, DType::kBF16, {n, k});
      source.random(seed, 0.05f);
      auto a = ops::pack_weight(**host, *ops::find_weight_format(device::DeviceKind::kCpu, "bf16"), source.cpu());
      auto b = ops::pack_weight(*c.device, *ops::find_weight_format(device::DeviceKind::kCuda, "bf16"), source.cpu());
      if (!a.ok() || !b.ok()) {
        c.report(false, "pack", a.ok() ? b.error().message : a.error().message);
        return;
      }
      cpu.push_back(std::move(a).value()), gpu.push_back(std::move(b).value());
    };
    pack(l.hidden, l.mixed, 11), pack(2 * l.inner, l.hidden, 12), pack(l.hidden, l.inner, 13);
    pack(l.next, l.hidden, 14);
  }
  Mirror mixed, residual, delta, x, between, gated, out, norm, bias, last_bias;
  std::vector<ops::PackedWeight> cpu, gpu;
};

Status layer(const Layer& l, Bench& b, bool on_gpu, device::Stream stream) {
  const auto view = [&](const Mirror& m) { return on_gpu ? m.gpu() : m.cpu(); };
  const std::vector<ops::PackedWeight>& w = on_gpu ? b.gpu : b.cpu;
  const ops::RmsNormParams norm{view(b.delta), view(b.residual), view(b.norm), view(b.x), 1e-5f};
  TERN_RETURN_IF_ERROR(ops::linear({view(b.mixed), &w[0], {}, view(b.delta)}, stream));
  TERN_RETURN_IF_ERROR(ops::rms_norm(norm, stream));
  const TensorView bias = l.bias ? view(b.bias) : TensorView{}, last = l.bias ? view(b.last_bias) : TensorView{};
  TERN_RETURN_IF_ERROR(ops::gated_linear({view(b.x), &w[1], bias, view(b.between)}, view(b.gated), stream));
  TERN_RETURN_IF_ERROR(ops::linear({view(b.gated), &w[2], {}, view(b.delta)}, stream));
  if (!l.second_norm) return {};
  TERN_RETURN_IF_ERROR(ops::rms_norm(norm, stream));
  return ops::linear({view(b.x), &w[3], last, view(b.out)}, stream);
}

Status chained(Context& c, const Layer& l, Bench& b, int times) {
  ops::begin_deferral(c.gpu, l.rows, true);
  Status s;
  for (int i = 0; i < times && s.ok(); ++i) s = layer(l, b, true, c.gpu);
  const Status closed = ops::end_deferral(c.gpu);
  return s.ok() ? closed : s;
}

// `times`: layers under one deferral, more steps than one launch takes; the sums over them grow by the same each time.
void layers(Context& c, const Layer& l, int times, const char* kernel) {
  Bench b(c, l);
  if (b.gpu.size() != 4) return;
  const std::string name = title("layer_chain", l.norm_type, {l.rows, l.mixed, l.hidden, l.inner, l.next, times});
  b.residual.random(5);
  Status cpu;
  for (int i = 0; i < times && cpu.ok(); ++i) cpu = layer(l, b, false, c.cpu);
  if (!c.both(name, cpu, chained(c, l, b, times))) return;
  if (kernel != nullptr && c.hopper() && !c.deterministic()) c.expect_kernel(name, kernel);
  compare(c, name + " sum", b.residual, b.residual.host(), 1.0 / 100);
  compare(c, name + " gated", b.gated, b.gated.host(), 2.0 / 100);
  if (!l.second_norm) return compare(c, name + " delta", b.delta, b.delta.host(), 1.0 / 100);
  compare(c, name + " normed", b.x, b.x.host(), 2.0 / 100);
  compare(c, name + " out", b.out, b.out.host(), 2.0 / 100);
}

// Again and again: the same bits, and counters that are put back.
void again(Context& c, const Layer& l, int times) {
  Bench b(c, l);
  if (b.gpu.size() != 4) return;
  std::vector<char> first;
  bool same = true;
  for (int i = 0; i < times; ++i) {
    b.residual.random(5);
    if (const Status s = chained(c, l, b, 1); !s.ok()) return c.report(false, "layer_chain", s.error().message);
    if (const Status s = c.device->synchronize(c.gpu); !s.ok())
      return c.report(false, "layer_chain", s.error().message);
    const std::vector<char> out = b.out.copy_to_host();
    if (i == 0) first = out;
    same = same && out == first;
  }
  c.report(same, title("layer_chain again", DType::kBF16, {l.rows, l.hidden}), "the same bits");
}

}  // namespace

void test_layer_chain(Context& c) {
  if (c.smallest) {
    layers(c, {1, 256, 256, 256, 256}, 1, "chain");
    layers(c, {1, 1024, 256, 288, 256}, 2, "chain");
    return;
  }
  layers(c, {1, 2048, 1024, 3072, 2560}, 1, "chain");
  layers(c, {1, 4096, 4096, 1536, 6144}, 1, "chain");
  layers(c, {1, 256, 256, 288, 16}, 3, "chain");
  layers(c, {1, 2080, 264, 2336, 48}, 1, nullptr);  // k of no multiple of 32 in between
  layers(c, {1, 4096, 4096, 12288, 6144}, 1, "chain");
  layers(c, {1, 768, 8192, 768, 768}, 1, "chain");
  layers(c, {1, 896, 896, 4864, 1152, true}, 1, "chain");
  layers(c, {1, 1024, 1024, 1024, 1024, false, DType::kF32, false}, 1, "chain");
  layers(c, {1, 1024, 1024, 1024, 1024, true, DType::kF32}, 1, "chain");
  for (const int64_t rows : {2, 9}) layers(c, {rows, 1024, 1024, 1024, 1024}, 1, nullptr);  // one after the other
  again(c, {1, 2048, 1024, 3072, 2560}, 200);
  again(c, {1, 4096, 4096, 1536, 6144}, 100);
}

}  // namespace tern::cuda_test
