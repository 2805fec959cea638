// Attention inside packed segments.
#include "ops/vision.h"
#include "cuda/tests/harness.h"

namespace tern::cuda_test {
namespace {

// q, k and v are parts of one fused row, as towers have them.
void run(Context& c, DType type, DType product, int heads, int dim, const std::vector<int32_t>& starts,
         const char* kernel, bool turned = false) {
  const int64_t tokens = starts.back(), width = int64_t{heads} * dim;
  Mirror qkv(c, type, {tokens, 3 * width}), s(c, DType::kI32, {static_cast<int64_t>(starts.size())}),
      out(c, type, {tokens, width}), cos(c, DType::kF32, {tokens, dim / 2}), sin(c, DType::kF32, {tokens, dim / 2});
  qkv.random(1), s.fill(starts), cos.random(2), sin.random(3);
  int longest = 0;
  for (size_t i = 1; i < starts.size(); ++i) longest = std::max(longest, starts[i] - starts[i - 1]);
  const auto segments = static_cast<int64_t>(starts.size()) - 1;
  std::vector<char> cpu_space(ops::segment_attention_workspace(c.cpu, tokens, segments, heads, dim) + 64);
  auto gpu_space = c.device->allocate(ops::segment_attention_workspace(c.gpu, tokens, segments, heads, dim));
  const std::string name = title("segment_attention", type, {tokens, heads, dim}) + " products " + dtype_name(product) +
                           (turned ? " rotated" : "");
  if (!gpu_space.ok()) return c.report(false, name, gpu_space.error().message);
  const auto params = [&](bool gpu) {
    const TensorView all = gpu ? qkv.gpu() : qkv.cpu();
    const auto part = [&](int64_t i) { return all.columns(i * width, (i + 1) * width).split(heads, dim); };
    ops::SegmentAttentionParams p;
    p.q = part(0), p.k = part(1), p.v = part(2);
    p.starts = gpu ? s.gpu() : s.cpu(), p.out = gpu ? out.gpu() : out.cpu();
    if (turned) p.cos = gpu ? cos.gpu() : cos.cpu(), p.sin = gpu ? sin.gpu() : sin.cpu();
    p.scale = 0.11f, p.max_segment = longest, p.product = product;
    p.workspace = gpu ? static_cast<void*>(gpu_space->data()) : cpu_space.data();
    return p;
  };
  if (!c.both(name, ops::segment_attention(params(false), c.cpu), ops::segment_attention(params(true), c.gpu))) return;
  c.expect_kernel(name, kernel);
  compare(c, name, out, out.host(), product == DType::kBF16 || type == DType::kBF16 ? 1.5 / 100 : 2e-5);
  if (turned) return;
  // The plan of the call before serves the next.
  const std::vector<char> first = out.copy_to_host();
  out.random(4);
  ops::SegmentAttentionParams again = params(true);
  again.planned = true;
  const Status status = ops::segment_attention(again, c.gpu);
  c.expect_kernel(name + " planned", kernel);
  if (!status.ok()) return c.report(false, name, status.error().message);
  compare(c, name + " planned", out, first.data(), 0);
}

}  // namespace

void test_segments(Context& c) {
  const std::vector<int32_t> ragged{0, 1, 65, 65, 129, c.smallest ? 140 : 500}, one{0, c.smallest ? 66 : 1300};
  for (const DType type : {DType::kBF16, DType::kF32}) {
    for (const auto& starts : {ragged, one}) {
      run(c, type, DType::kBF16, 4, 64, starts, "attention_64");
      run(c, type, DType::kBF16, 2, 72, starts, "attention_128");
      run(c, type, DType::kBF16, 2, 80, starts, "attention_128");
      run(c, type, DType::kF32, 2, 32, ragged, "attention_plain");
    }
  }
  const bool hopper = c.hopper() && !c.deterministic();
  run(c, DType::kBF16, DType::kBF16, 128, 80, {0, 1, 67}, hopper ? "attention_segments_sm90" : "attention_128");
  for (const DType type : {DType::kBF16, DType::kF32}) {
    const bool own = hopper && type == DType::kBF16;
    run(c, type, DType::kBF16, 128, 72, {0, 70}, own ? "attention_segments_sm90" : "attention_128", true);
  }
  run(c, DType::kBF16, DType::kBF16, 3, 24, {0, 9, 40}, "attention_64", true);
  run(c, DType::kBF16, DType::kBF16, 150, 128, {0, 2}, "attention_128", true);
  run(c, DType::kF32, DType::kBF16, 2, 80, {0, 1, 67}, "attention_128", true);
  if (c.smallest) return;
  for (const DType type : {DType::kBF16, DType::kF32}) {
    for (const int dim : {64, 72, 80, 128}) {
      run(c, type, DType::kBF16, 16, dim, {0, 1, 130, 130, 642, 1300},
          hopper && type == DType::kBF16 ? "attention_segments_sm90"
          : dim == 64                    ? "attention_64"
                                         : "attention_128");
    }
  }
  run(c, DType::kBF16, DType::kBF16, 16, 80, {0, 4096}, hopper ? "attention_segments_sm90" : "attention_128");
  if (!hopper) return;
  // A last turn of the blocks in two parts and in three.
  run(c, DType::kBF16, DType::kBF16, 16, 72, {0, 2300}, "attention_segments_sm90");
  run(c, DType::kBF16, DType::kBF16, 16, 72, {0, 1700, 1764}, "attention_segments_sm90");
}

}  // namespace tern::cuda_test
