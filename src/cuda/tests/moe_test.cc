// Mixture of experts.
#include "ops/moe.h"
#include "cuda/tests/harness.h"
#include "ops/linear.h"

namespace tern::cuda_test {
namespace {

// Logits are far apart, so that exponentials of another library cannot change the choice.
void route(Context& c, ops::MoeRouteParams shape, int64_t tokens, int experts, bool bias, const char* what) {
  Mirror logits(c, DType::kF32, {tokens, experts}), b(c, DType::kF32, {experts}),
      ids(c, DType::kI32, {tokens, shape.top_k}), weights(c, DType::kF32, {tokens, shape.top_k}),
      words(c, DType::kI32, {tokens});
  logits.random(1, 3.0f), b.random(2, 0.1f);
  std::vector<int32_t> w;
  for (int64_t t = 0; t < tokens; ++t) w.push_back(static_cast<int32_t>(t));
  words.fill(w);
  const std::string name = title(std::string("moe_route ") + what, DType::kF32, {tokens, experts, shape.top_k});
  const auto params = [&](bool gpu) {
    const auto v = [&](const Mirror& m) { return gpu ? m.gpu() : m.cpu(); };
    ops::MoeRouteParams p = shape;
    p.logits = v(logits), p.ids = v(ids), p.weights = v(weights);
    if (bias) p.bias = v(b);
    if (p.split >= 0) p.token_ids = v(words);
    return p;
  };
  if (!c.both(name, ops::moe_route(params(false), c.cpu), ops::moe_route(params(true), c.gpu))) return;
  const bool few = shape.split < 0 && !shape.forced && shape.topk_group == shape.n_group && experts <= 256;
  c.expect_kernel(name, few ? "moe_route_few" : "moe_route");
  compare(c, name + " ids", ids, ids.host(), 0);
  compare(c, name + " weights", weights, weights.host(), 1e-5);
}

void routes(Context& c, int64_t tokens) {
  ops::MoeRouteParams p;
  p.top_k = 8;
  route(c, p, tokens, 128, false, "softmax");
  route(c, p, tokens, 500, false, "softmax of many");
  p.top_k = 6, p.scoring = ops::MoeScoring::kSigmoid, p.renorm_eps = 1e-20f, p.scale = 2.5f;
  p.n_group = 8, p.topk_group = 4;
  route(c, p, tokens, 256, true, "groups");
  p.scoring = ops::MoeScoring::kSoftmax, p.renormalize = false;
  route(c, p, tokens, 64, false, "groups softmax");
  ops::MoeRouteParams flat;
  flat.top_k = 5, flat.scoring = ops::MoeScoring::kSigmoid, flat.renorm_eps = 1e-20f, flat.renorm_min = 0.5f;
  for (const int experts : {5, 60, 130, 256}) route(c, flat, tokens, experts, true, "sigmoid and bias");
  ops::MoeRouteParams two;
  two.top_k = 2, two.split = 6, two.renorm_min = 1e-12f, two.second.from = 30;
  two.second.listed = 2, two.second.ids[0] = 3, two.second.ids[1] = 11;
  route(c, two, tokens, 10, true, "two banks");
  two.split = 10;
  route(c, two, tokens, 10, true, "an empty bank");
  ops::MoeRouteParams given;
  given.top_k = 4, given.forced = true;
  route(c, given, tokens, 16, false, "forced");
}

void sort_and_combine(Context& c, DType type, int64_t tokens, int64_t width, int experts, int top_k) {
  Mirror x(c, type, {tokens, width}), ids(c, DType::kI32, {tokens, top_k}), offsets(c, DType::kI32, {experts + 1}),
      row_of(c, DType::kI32, {tokens, top_k}), sorted(c, type, {tokens * top_k, width}),
      weights(c, DType::kF32, {tokens, top_k}), shared(c, type, {tokens, width}), gate(c, DType::kF32, {tokens}),
      out(c, type, {tokens, width}), token_of(c, DType::kI32, {tokens * top_k});
  x.random(3), weights.random(4), shared.random(5), gate.random(6);
  std::vector<int32_t> choice;
  for (int64_t i = 0; i < tokens * top_k; ++i) choice.push_back(static_cast<int32_t>((i * i + i / 7) % experts));
  ids.fill(choice);
  const std::string name = title("moe_permute", type, {tokens, width, experts, top_k});
  if (c.both(name, ops::moe_permute({x.cpu(), ids.cpu(), experts, offsets.cpu(), row_of.cpu(), sorted.cpu()}, c.cpu),
             ops::moe_permute({x.gpu(), ids.gpu(), experts, offsets.gpu(), row_of.gpu(), sorted.gpu()}, c.gpu))) {
    const bool few = width * static_cast<int64_t>(dtype_bytes(type)) % 16 == 0 && tokens * top_k <= 2048;
    c.expect_kernel(name, few ? "moe_permute_few" : "moe_permute");
    compare(c, name + " offsets", offsets, offsets.host(), 0);
    compare(c, name + " row_of", row_of, row_of.host(), 0);
    compare(c, name + " rows", sorted, sorted.host(), 0);
    std::vector<int32_t> token(static_cast<size_t>(tokens * top_k));
    const auto* row = reinterpret_cast<const int32_t*>(row_of.host());
    for (size_t i = 0; i < token.size(); ++i) token[static_cast<size_t>(row[i])] = static_cast<int32_t>(i) / top_k;
    const auto told = ops::moe_permute(
        {x.gpu(), ids.gpu(), experts, offsets.gpu(), row_of.gpu(), sorted.gpu(), token_of.gpu()}, c.gpu);
    if (c.both(name + " tokens", {}, told)) {
      compare(c, name + " tokens", token_of, reinterpret_cast<const char*>(token.data()), 0);
    }
    (void)ops::moe_permute({x.gpu(), ids.gpu(), experts, offsets.gpu(), row_of.gpu(), sorted.gpu()}, c.gpu);
  }
  for (const bool with : {false, true}) {
    const auto params = [&](bool gpu) {
      const auto v = [&](const Mirror& m) { return gpu ? m.gpu() : m.cpu(); };
      return ops::MoeCombineParams{
          v(sorted), v(row_of), v(weights), with ? v(shared) : TensorView{}, with ? v(gate) : TensorView{}, v(out)};
    };
    const std::string sum = title(with ? "moe_combine shared" : "moe_combine", type, {tokens, width, top_k});
    if (c.both(sum, ops::moe_combine(params(false), c.cpu), ops::moe_combine(params(true), c.gpu))) {
      compare(c, sum, out, out.host(), tolerance_of(type));
    }
    if (type == DType::kF32) continue;
    // bfloat16 results of a float32 sum.
    Mirror exact(c, DType::kF32, {tokens, width}), beside(c, DType::kF32, {tokens, width});
    beside.random(5);
    const auto mixed = [&](bool gpu) {
      const auto v = [&](const Mirror& m) { return gpu ? m.gpu() : m.cpu(); };
      ops::MoeCombineParams q = params(gpu);
      q.out = v(exact);
      if (with) q.shared = v(beside);
      return q;
    };
    if (c.both(sum + " to f32", ops::moe_combine(mixed(false), c.cpu), ops::moe_combine(mixed(true), c.gpu))) {
      compare(c, sum + " to f32", exact, exact.host(), tolerance_of(DType::kF32));
    }
  }
}

// The choice and the sort together.
void dispatch(Context& c, ops::MoeRouteParams shape, DType type, int64_t tokens, int64_t width, int experts) {
  Mirror logits(c, DType::kF32, {tokens, experts}), bias(c, DType::kF32, {experts}), x(c, type, {tokens, width}),
      ids(c, DType::kI32, {tokens, shape.top_k}), weights(c, DType::kF32, {tokens, shape.top_k}),
      offsets(c, DType::kI32, {experts + 1}), row_of(c, DType::kI32, {tokens, shape.top_k}),
      sorted(c, type, {tokens * shape.top_k, width});
  logits.random(7, 3.0f), bias.random(8, 0.1f), x.random(9);
  const auto params = [&](bool gpu) {
    const auto v = [&](const Mirror& m) { return gpu ? m.gpu() : m.cpu(); };
    ops::MoeDispatchParams p{shape, {v(x), v(ids), experts, v(offsets), v(row_of), v(sorted)}};
    p.route.logits = v(logits), p.route.bias = v(bias), p.route.ids = v(ids), p.route.weights = v(weights);
    return p;
  };
  const std::string name = title("moe_dispatch", type, {tokens, width, experts, shape.top_k});
  if (!c.both(name, ops::moe_dispatch(params(false), c.cpu), ops::moe_dispatch(params(true), c.gpu))) return;
  const bool vector = width * static_cast<int64_t>(dtype_bytes(type)) % 16 == 0, few = tokens * shape.top_k <= 1024;
  const char* together = c.hopper() && tokens > 8 ? "moe_dispatch_cluster" : "moe_dispatch";
  c.expect_kernel(name, few && vector && experts <= 256          ? together
                        : vector && tokens * shape.top_k <= 2048 ? "moe_permute_few"
                                                                 : "moe_permute");
  compare(c, name + " ids", ids, ids.host(), 0);
  compare(c, name + " weights", weights, weights.host(), 1e-5);
  compare(c, name + " offsets", offsets, offsets.host(), 0);
  compare(c, name + " row_of", row_of, row_of.host(), 0);
  compare(c, name + " rows", sorted, sorted.host(), 0);
}

// Tokens alone get the scores and the choice that they get among others, bit by bit.
void same_choice(Context& c) {
  constexpr int64_t kTokens = 128, kWidth = 520;
  constexpr int kExperts = 128, kTop = 8;
  Mirror router(c, DType::kBF16, {kExperts, kWidth}), x(c, DType::kBF16, {kTokens, kWidth}),
      logits(c, DType::kF32, {kTokens, kExperts}), ids(c, DType::kI32, {kTokens, kTop}),
      weights(c, DType::kF32, {kTokens, kTop}), offsets(c, DType::kI32, {kExperts + 1}),
      row_of(c, DType::kI32, {kTokens, kTop}), sorted(c, DType::kBF16, {kTokens * kTop, kWidth});
  router.random(31, 0.05f), x.random(32);
  const std::string name = title("the same choice in every batch", DType::kBF16, {kWidth, kExperts, kTop});
  const auto packed =
      ops::pack_weight(*c.device, *ops::find_weight_format(device::DeviceKind::kCuda, "f32"), router.cpu());
  if (!packed.ok()) return c.report(false, name, packed.error().message);
  const auto run = [&](int64_t t, int64_t count) {
    const auto part = [&](const Mirror& m, int64_t each = 1) {
      TensorView v = m.gpu();
      v.data = v.row_bytes(t * each), v.dim[0] = count * each;
      return v;
    };
    ops::MoeDispatchParams p;
    p.permute = {part(x), part(ids), kExperts, offsets.gpu(), part(row_of), part(sorted, kTop)};
    p.route.top_k = kTop, p.route.logits = part(logits), p.route.ids = part(ids), p.route.weights = part(weights);
    Status s = ops::linear({part(x), &packed.value(), {}, part(logits)}, c.gpu);
    if (s.ok()) s = ops::moe_dispatch(p, c.gpu);
    if (!s.ok()) c.report(false, name, s.error().message);
  };
  run(0, kTokens);
  const std::vector<char> score = logits.copy_to_host(), weight = weights.copy_to_host(), expert = ids.copy_to_host();
  for (const int64_t first : c.pick<int64_t>({1, 7, 9, 30, 33, 70}, 3)) {
    logits.random(33), weights.random(34), ids.random(35);
    run(0, first), run(first, kTokens - first);
    const bool same =
        logits.copy_to_host() == score && weights.copy_to_host() == weight && ids.copy_to_host() == expert;
    c.report(same, name, std::to_string(first) + " and the others");
  }
}

// The sum and the norm behind it: the bits of one after the other where the norm has a block per row.
void combine_norm(Context& c, DType y_type, DType type, DType weight_type, int64_t tokens, int64_t width, int top_k,
                  bool shared) {
  Mirror y(c, y_type, {tokens * top_k, width}), row_of(c, DType::kI32, {tokens, top_k}),
      weights(c, DType::kF32, {tokens, top_k}), beside(c, type, {tokens, width}), gate(c, DType::kF32, {tokens}),
      sum(c, type, {tokens, width}), residual(c, type, {tokens, width}), norm(c, weight_type, {width}),
      out(c, DType::kBF16, {tokens, width}), twice(c, DType::kBF16, {tokens, width});
  y.random(21), weights.random(22), beside.random(23), gate.random(24), residual.random(25), norm.random(26);
  std::vector<int32_t> place;
  for (int64_t i = 0; i < tokens * top_k; ++i) place.push_back(static_cast<int32_t>(i * 7 % (tokens * top_k)));
  row_of.fill(place);
  const auto params = [&](bool gpu, const Mirror& to) {
    const auto v = [&](const Mirror& m) { return gpu ? m.gpu() : m.cpu(); };
    return ops::MoeCombineNormParams{
        {v(y), v(row_of), v(weights), shared ? v(beside) : TensorView{}, shared ? v(gate) : TensorView{}, v(sum)},
        {v(sum), v(residual), v(norm), v(to)}};
  };
  const std::string name = title("moe_combine_norm", y_type, {tokens, width, top_k});
  if (!c.both(name, ops::moe_combine_norm(params(false, out), c.cpu),
              ops::moe_combine_norm(params(true, out), c.gpu))) {
    return;
  }
  const bool together = type == DType::kF32 && width % 8 == 0 && width <= 8192;
  if (together) c.expect_kernel(name, "moe_combine_norm");
  compare(c, name, out, out.host(), 1.0 / 100);
  compare(c, name + " residual", residual, residual.host(), tolerance_of(type));
  residual.random(25);
  const ops::MoeCombineNormParams apart = params(true, twice);
  if (!ops::moe_combine(apart.combine, c.gpu).ok() || !ops::rms_norm(apart.norm, c.gpu).ok()) {
    return c.report(false, name, "one after the other failed");
  }
  (void)c.device->synchronize(c.gpu);
  const std::vector<char> want = out.copy_to_host();
  if (width > 512 && width <= 4096) compare(c, name + " in two", twice, want.data(), 0);
}

void dispatches(Context& c) {
  ops::MoeRouteParams p;
  p.top_k = 8;
  for (const int64_t tokens : c.pick<int64_t>({1, 9, 3, 32, 100, 128, 129}, 2)) {
    dispatch(c, p, DType::kBF16, tokens, 256, 128);
    dispatch(c, p, DType::kF32, tokens, 40, 130);
  }
  p.top_k = 3, p.scoring = ops::MoeScoring::kSigmoid;
  for (const int64_t tokens : c.pick<int64_t>({2, 12, 341}, 2)) dispatch(c, p, DType::kBF16, tokens, 64, 5);
  dispatch(c, p, DType::kBF16, 5, 64, 300);
  dispatch(c, p, DType::kBF16, 5, 35, 60);
}

}  // namespace

void test_moe(Context& c) {
  dispatches(c);
  same_choice(c);
  for (const int64_t tokens : c.pick<int64_t>({1, 40}, 1)) {
    combine_norm(c, DType::kF32, DType::kF32, DType::kBF16, tokens, 2048, 8, false);
    combine_norm(c, DType::kBF16, DType::kF32, DType::kBF16, tokens, 2048, 8, false);
    combine_norm(c, DType::kBF16, DType::kF32, DType::kF32, tokens, 7168, 9, true);
    combine_norm(c, DType::kF32, DType::kF32, DType::kF32, tokens, 7168, 9, true);
    combine_norm(c, DType::kF32, DType::kF32, DType::kBF16, tokens, 100, 2, true);
    combine_norm(c, DType::kBF16, DType::kBF16, DType::kBF16, tokens, 1024, 6, true);
  }
  for (const int64_t tokens : c.pick<int64_t>({1, 40, 1029}, 2)) {
    routes(c, tokens);
    for (const DType type : {DType::kBF16, DType::kF32}) {
      sort_and_combine(c, type, tokens, 256, 128, 8);
      sort_and_combine(c, type, tokens, 35, 3, 2);
    }
  }
}

}  // namespace tern::cuda_test
