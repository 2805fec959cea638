// Experts of few tokens as a model runs them. Up to the product behind the norm that follows: their last products, the
// sum and the norm are put off (cuda/fusion/norm_fusion.h) and done together. And what stands before them: the norm,
// the router, the choice and the sort.
#include "cuda/tests/harness.h"
#include "cuda/tests/products.h"
#include "ops/deferral.h"
#include "ops/moe.h"
#include "ops/norm.h"

namespace tern::cuda_test {
namespace {

struct Experts {
  int64_t tokens, hidden, inner, next;  // widths
  int experts, top_k;
  bool joined;  // whether the device may join what it puts off
  bool once = true, shared = false;
  int64_t experts_apart = 1;  // neighbours in rank; 0: a token names one expert again and again
};

struct Bench {
  Bench(Context& c, const Experts& e)
      : x(c, DType::kBF16, {e.tokens, e.hidden}, 8),
        ids(c, DType::kI32, {e.tokens, e.top_k}),
        weights(c, DType::kF32, {e.tokens, e.top_k}),
        offsets(c, DType::kI32, {e.experts + 1}),
        row_of(c, DType::kI32, {e.tokens, e.top_k}),
        sorted(c, DType::kBF16, {e.tokens * e.top_k, e.hidden}),
        between(c, DType::kF32, {e.tokens * e.top_k, 2 * e.inner}),
        inner(c, DType::kBF16, {e.tokens * e.top_k, e.inner}, 8),
        results(c, DType::kF32, {e.tokens * e.top_k, e.hidden}),
        shared(c, DType::kF32, {e.tokens, e.hidden}),
        delta(c, DType::kF32, {e.tokens, e.hidden}),
        residual(c, DType::kF32, {e.tokens, e.hidden}, 4),
        norm(c, DType::kBF16, {e.hidden}),
        out(c, DType::kF32, {e.tokens, e.next}, 8),
        gate_up(pack(c, "bf16", DType::kBF16, e.experts, 2 * e.inner, e.hidden, 11)),
        down(pack(c, "bf16", DType::kBF16, e.experts, e.hidden, e.inner, 111)),
        last(pack(c, "bf16", DType::kBF16, 1, e.next, e.hidden, 211)) {
    weights.random(2), shared.random(3), norm.random(4);
    std::vector<int32_t> choice;
    for (int64_t t = 0; t < e.tokens; ++t) {
      for (int64_t j = 0; j < e.top_k; ++j) {
        choice.push_back(static_cast<int32_t>((t * 3 + j * e.experts_apart) % e.experts));
      }
    }
    ids.fill(choice);
  }
  bool ready() const { return gate_up.gpu.size() == down.gpu.size() && last.gpu.size() == 1; }
  void fresh() { x.random(1), residual.random(5); }
  Mirror x, ids, weights, offsets, row_of, sorted, between, inner, results, shared, delta, residual, norm, out;
  Weights gate_up, down, last;
};

// `joined`: the kernel that the last product brought with it.
Status run(Context& c, const Experts& e, Bench& b, bool on_gpu, std::string* joined = nullptr) {
  const auto view = [&](const Mirror& m) { return on_gpu ? m.gpu() : m.cpu(); };
  const auto of = [&](const Weights& w) -> const std::vector<ops::PackedWeight>& { return on_gpu ? w.gpu : w.cpu; };
  const device::Stream stream = on_gpu ? c.gpu : c.cpu;
  TERN_RETURN_IF_ERROR(
      ops::moe_permute({view(b.x), view(b.ids), e.experts, view(b.offsets), view(b.row_of), view(b.sorted)}, stream));
  TERN_RETURN_IF_ERROR(ops::grouped_gated_linear({view(b.sorted), view(b.offsets), of(b.gate_up), view(b.between)},
                                                 view(b.inner), stream));
  ops::GroupedLinearParams down{view(b.inner), view(b.offsets), of(b.down), view(b.results)};
  down.once = e.once;
  TERN_RETURN_IF_ERROR(ops::grouped_linear(down, stream));
  const TensorView shared = e.shared ? view(b.shared) : TensorView{};
  TERN_RETURN_IF_ERROR(
      ops::moe_combine_norm({{view(b.results), view(b.row_of), view(b.weights), shared, {}, view(b.delta)},
                             {view(b.delta), view(b.residual), view(b.norm), view(b.x), 1e-5f, true}},
                            stream));
  TERN_RETURN_IF_ERROR(ops::linear({view(b.x), of(b.last).data(), {}, view(b.out)}, stream));
  if (joined != nullptr) *joined = c.cuda->last_kernel(stream);
  return {};
}

Status in_chain(Context& c, const Experts& e, Bench& b, std::string* joined = nullptr) {
  ops::begin_deferral(c.gpu, e.tokens);
  const Status s = run(c, e, b, true, joined);
  const Status closed = ops::end_deferral(c.gpu);
  return s.ok() ? closed : s;
}

// Against the CPU, and again: the same bits.
void experts(Context& c, const Experts& e) {
  Bench b(c, e);
  if (!b.ready()) return;
  const std::string name =
      title("experts and a norm", DType::kBF16, {e.tokens, e.hidden, e.inner, e.next, e.experts, e.top_k});
  b.fresh();
  std::string joined;
  if (!c.both(name, run(c, e, b, false), in_chain(c, e, b, &joined))) return;
  if (c.hopper() && !c.deterministic()) {
    c.report((joined == "gemm_grouped_sum") == e.joined, name, "the last product came with " + joined);
    if (e.joined) c.kernels.insert(joined);
  }
  compare(c, name + " sum", b.residual, b.residual.host(), 1.0 / 100);
  compare(c, name + " out", b.out, b.out.host(), 2.0 / 100);
  const std::vector<char> sum = b.residual.copy_to_host(), out = b.out.copy_to_host();
  b.fresh();
  if (!c.both(name, {}, in_chain(c, e, b))) return;
  c.report(sum == b.residual.copy_to_host() && out == b.out.copy_to_host(), name, "the same bits");
}

// Nothing behind the norm, and nothing behind the products.
void left_alone(Context& c, const Experts& e) {
  Bench b(c, e);
  if (!b.ready()) return;
  b.fresh();
  const std::string name = title("experts put off", DType::kBF16, {e.tokens, e.hidden, e.inner});
  const auto products = [&](bool on_gpu, bool norm) -> Status {
    const auto view = [&](const Mirror& m) { return on_gpu ? m.gpu() : m.cpu(); };
    const device::Stream stream = on_gpu ? c.gpu : c.cpu;
    ops::begin_deferral(stream, e.tokens);
    TERN_RETURN_IF_ERROR(
        ops::moe_permute({view(b.x), view(b.ids), e.experts, view(b.offsets), view(b.row_of), view(b.sorted)}, stream));
    ops::GroupedLinearParams down{view(b.inner), view(b.offsets), on_gpu ? b.down.gpu : b.down.cpu, view(b.results)};
    down.once = true;
    TERN_RETURN_IF_ERROR(ops::grouped_linear(down, stream));
    if (norm) {
      TERN_RETURN_IF_ERROR(
          ops::moe_combine_norm({{view(b.results), view(b.row_of), view(b.weights), {}, {}, view(b.delta)},
                                 {view(b.delta), view(b.residual), view(b.norm), view(b.x), 1e-5f, true}},
                                stream));
    }
    return ops::end_deferral(stream);
  };
  b.inner.random(6);
  if (!c.both(name, products(false, false), products(true, false))) return;
  compare(c, name, b.results, b.results.host(), 1.0 / 100);
  if (!c.both(name, products(false, true), products(true, true))) return;
  compare(c, name + " sum", b.residual, b.residual.host(), 1.0 / 100);
  compare(c, name + " normed", b.x, b.x.host(), 2.0 / 100);
}

struct Entrance {
  int64_t tokens, width;
  int experts, top_k;
  const char* kernel;  // null: any
  bool norm = true;
  DType norm_type = DType::kBF16;
  ops::MoeScoring scoring = ops::MoeScoring::kSoftmax;
  const char* chooser = nullptr;  // the kernel before the sort; null: any, or it is one with the sort
};

void entrance(Context& c, const Entrance& e) {
  Weights w = pack(c, "f32", DType::kBF16, 1, e.experts, e.width, 301);
  if (w.gpu.empty()) return;
  const int64_t pairs = e.tokens * e.top_k;
  Mirror delta(c, DType::kF32, {e.tokens, e.width}, 8), residual(c, DType::kF32, {e.tokens, e.width}, 4),
      norm(c, e.norm_type, {e.width}), x(c, DType::kBF16, {e.tokens, e.width}, 8),
      logits(c, DType::kF32, {e.tokens, e.experts}, 3), bias(c, DType::kF32, {e.experts}),
      ids(c, DType::kI32, {e.tokens, e.top_k}), weights(c, DType::kF32, {e.tokens, e.top_k}),
      offsets(c, DType::kI32, {e.experts + 1}), row_of(c, DType::kI32, {e.tokens, e.top_k}),
      sorted(c, DType::kBF16, {pairs, e.width}, 16);
  delta.random(302), residual.random(303), norm.random(304), bias.random(305, 0.01f), x.random(306);
  const std::string name = title("moe_dispatch with a router", e.norm_type, {e.tokens, e.width, e.experts, e.top_k});
  const auto params = [&](bool on_gpu) {
    const auto v = [&](const Mirror& m) { return on_gpu ? m.gpu() : m.cpu(); };
    ops::MoeDispatchParams p;
    p.route.logits = v(logits), p.route.bias = v(bias), p.route.scoring = e.scoring, p.route.top_k = e.top_k;
    p.route.ids = v(ids), p.route.weights = v(weights);
    p.permute = {v(x), v(ids), e.experts, v(offsets), v(row_of), v(sorted)};
    p.router = {v(x), on_gpu ? w.gpu.data() : w.cpu.data(), {}, v(logits)};
    if (e.norm) p.norm = {v(delta), v(residual), v(norm), v(x), 1e-5f};
    return p;
  };
  if (!c.both(name, ops::moe_dispatch(params(false), c.cpu), ops::moe_dispatch(params(true), c.gpu))) return;
  if (e.kernel != nullptr && c.hopper() && !c.deterministic()) c.expect_kernel(name, e.kernel);
  compare(c, name + " sum", residual, residual.host(), 1e-6);
  compare(c, name + " x", x, x.host(), 1.0 / 100);
  compare(c, name + " logits", logits, logits.host(), 1.0 / 100);
  compare(c, name + " ids", ids, ids.host(), 0);
  compare(c, name + " weights", weights, weights.host(), 1.0 / 100);
  compare(c, name + " offsets", offsets, offsets.host(), 0);
  compare(c, name + " row_of", row_of, row_of.host(), 0);
  compare(c, name + " rows", sorted, sorted.host(), 1.0 / 100);
  // The emulated GPU has no room for small tiles of a router.
  if (e.chooser == nullptr || !c.hopper() || c.deterministic() || c.label == "hopper") return;
  // A sort that is refused leaves what ran before it as the last kernel.
  ops::MoeDispatchParams p = params(true);
  p.permute.offsets.dim[0] = e.experts;
  c.report(!ops::moe_dispatch(p, c.gpu).ok(), name, "offsets without an end are refused");
  c.expect_kernel(name + " before the sort", e.chooser);
}

void entrances(Context& c) {
  constexpr const char *kNorm = "moe_dispatch_norm", *kRouter = "moe_dispatch_router";
  for (const int64_t tokens : {int64_t{1}, int64_t{2}}) {
    entrance(c, {tokens, 2048, 128, 8, kNorm});
    entrance(c, {tokens, 520, 100, 8, kNorm, true, DType::kBF16, ops::MoeScoring::kSigmoid});
    entrance(c, {tokens, 8, 17, 1, kNorm});
    entrance(c, {tokens, 1032, 128, 8, kRouter, false});
    entrance(c, {tokens, 264, 64, 6, kRouter, true, DType::kF32});
  }
  entrance(c, {1, 1024, 128, 32, kNorm});
  entrance(c, {3, 2048, 128, 8, "moe_dispatch"});
  entrance(c, {2, 512, 128, 17, "moe_dispatch"});
  entrance(c, {5, 512, 128, 4, "moe_dispatch"});
  entrance(c, {8, 512, 128, 9, "moe_dispatch"});
  entrance(c, {2, 2056, 128, 8, "moe_dispatch"});
  entrance(c, {2, 512, 130, 8, "moe_dispatch"});
}

// Of many tokens the router's kernel chooses as long as its tiles are small, and the sort is one by itself.
void many_entrances(Context& c) {
  constexpr auto kSigmoid = ops::MoeScoring::kSigmoid, kSoftmax = ops::MoeScoring::kSoftmax;
  constexpr const char *kChoice = "gemm_router_choice", *kApart = "moe_route_few";
  entrance(c, {129, 2048, 128, 8, nullptr, true, DType::kBF16, kSoftmax, kChoice});
  entrance(c, {200, 520, 100, 6, nullptr, false, DType::kBF16, kSigmoid, kChoice});
  entrance(c, {300, 4104, 40, 4, nullptr, false, DType::kBF16, kSoftmax, kChoice});
  entrance(c, {1000, 512, 64, 2, nullptr, false});  // by the size of the GPU
  entrance(c, {1100, 264, 128, 3, nullptr, false});
  entrance(c, {4100, 264, 128, 1, nullptr, false, DType::kBF16, kSoftmax, kApart});
}

}  // namespace

void test_experts(Context& c) {
  entrances(c);
  many_entrances(c);
  // By the size of the GPU: blocks of 16 columns, one, two and three on a multiprocessor.
  const bool emulated = c.label == "hopper";
  const int64_t one = emulated     ? 64
                      : c.smallest ? 1408
                                   : 2048,
                two = emulated ? 192 : 4096, three = emulated ? 256 : 6144;
  for (const int64_t tokens : c.pick<int64_t>({1, 2, 3, 4}, 2)) {
    // Of eight rows of experts and fewer another kernel is ahead.
    experts(c, {tokens, one, tokens == 2 && !c.smallest ? 768 : 192, 128, 12, 8, tokens > 1});
    if (c.smallest) continue;
    experts(c, {tokens, two, 192, 64, 20, 5, tokens > 1});
    experts(c, {tokens, three, 64, 192, 7, 7, tokens > 1});
  }
  if (c.smallest) return;
  experts(c, {8, one, 128, 64, 6, 4, true});
  experts(c, {7, one, 320, 64, 30, 1, false});
  experts(c, {5, one, 320, 64, 30, 2, true});
  experts(c, {1, one, 64, 64, 256, 32, true, true, false, 7});
  experts(c, {3, one, 128, 64, 5, 4, true, true, false, 0});
  // What keeps them apart.
  if (!emulated) experts(c, {9, one, 128, 64, 6, 2, false});
  experts(c, {5, one, 128, 64, 12, 8, false});
  experts(c, {2, one, 96, 64, 12, 8, false});
  experts(c, {2, 48, 128, 64, 12, 8, false});
  experts(c, {2, one, 128, 64, 12, 8, false, false});
  experts(c, {2, one, 128, 64, 12, 8, false, true, true});
  left_alone(c, {2, one, 128, 64, 12, 8, true});
  left_alone(c, {4, one, 192, 64, 12, 8, true});
}

}  // namespace tern::cuda_test
