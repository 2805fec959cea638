// A mixture of experts from the router's product to the combined result, whole and in its parts.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <set>

#include "bench/kernels.h"
#include "ops/activation.h"
#include "ops/moe.h"

namespace tern::bench {
namespace {

struct MoeShape {
  int64_t hidden = 2048, width = 768;
  int experts = 128, top_k = 8;
};

constexpr int kMovedTokens = 128;  // more are read where they are

// Everything one layer needs; parts of it may run alone.
struct Layer {
  MoeShape shape;
  TensorView x, logits, wanted, ids, weights, offsets, row_of, token_of, sorted, gate_up, hidden, results, out;
  const ops::PackedWeight* router = nullptr;
  std::span<const ops::PackedWeight> gate_ups, downs;  // of all turns
  device::Stream stream;
  double expert_bytes = 0;  // weights of the experts that some token chose

  std::span<const ops::PackedWeight> of(std::span<const ops::PackedWeight> all, int turn) const {
    const auto n = static_cast<size_t>(shape.experts);
    return all.subspan(static_cast<size_t>(turn) * n, n);
  }
  ops::MoeRouteParams routing() const {
    return {.logits = wanted, .top_k = shape.top_k, .ids = ids, .weights = weights};
  }
  ops::MoePermuteParams permutation() const { return {x, ids, shape.experts, offsets, row_of, sorted}; }
  // As a model asks for it: rows may stay where they are.
  ops::MoePermuteParams sorting() const { return {x, ids, shape.experts, offsets, row_of, sorted, token_of}; }
  Status multiply_router() const { return ops::linear({x, router, {}, logits}, stream); }
  Status route() const { return ops::moe_route(routing(), stream); }
  Status permute() const { return ops::moe_permute(permutation(), stream); }
  Status dispatch() const { return ops::moe_dispatch({routing(), sorting()}, stream); }
  Status enter(int turn) const { return ops::grouped_linear({sorted, offsets, of(gate_ups, turn), gate_up}, stream); }
  Status enter_gated(int turn) const {
    return ops::grouped_gated_linear({sorted, offsets, of(gate_ups, turn), gate_up, x, token_of}, hidden, stream);
  }
  Status gate() const { return ops::silu_mul({gate_up, hidden, offsets}, stream); }
  Status leave(int turn) const { return ops::grouped_linear({hidden, offsets, of(downs, turn), results}, stream); }
  Status combine() const {
    return ops::moe_combine({.y = results, .row_of = row_of, .weights = weights, .out = out}, stream);
  }
  // The router's product, the choice and the sort in one op, as in a model.
  Status dispatch_by_router() const {
    ops::MoeRouteParams p = routing();
    p.logits = logits;
    return ops::moe_dispatch({p, sorting(), {x, router, {}, logits}}, stream);
  }
  Status whole(int turn) const {
    TERN_RETURN_IF_ERROR(dispatch_by_router());
    TERN_RETURN_IF_ERROR(enter_gated(turn));
    TERN_RETURN_IF_ERROR(leave(turn));
    return combine();
  }
};

// Gumbel noise over the logarithm of a popularity: balanced, or falling as 1 / (place + 4).
std::vector<float> choose(const MoeShape& s, int tokens, bool skewed) {
  std::mt19937_64 random(11);
  std::uniform_real_distribution<double> uniform(1e-9, 1.0);
  std::vector<float> logits;
  for (int t = 0; t < tokens; ++t) {
    for (int e = 0; e < s.experts; ++e) {
      const double popularity = skewed ? -std::log(4.0 + e) : 0.0;
      logits.push_back(static_cast<float>(popularity - std::log(-std::log(uniform(random)))));
    }
  }
  return logits;
}

size_t chosen_experts(const MoeShape& s, int tokens, const std::vector<float>& logits) {
  std::set<int> used;
  std::vector<int> order(static_cast<size_t>(s.experts));
  for (int t = 0; t < tokens; ++t) {
    const float* row = logits.data() + static_cast<size_t>(t) * static_cast<size_t>(s.experts);
    std::iota(order.begin(), order.end(), 0);
    std::partial_sort(order.begin(), order.begin() + s.top_k, order.end(),
                      [&](int a, int b) { return row[a] > row[b]; });
    used.insert(order.begin(), order.begin() + s.top_k);
  }
  return used.size();
}

// Tokens and a router whose product is what the experiment has decided: of every token, values [0, E) are the wanted
// scores, values [E, 2E) what bfloat16 has cut off of them, and the router adds up the two.
struct Carried {
  std::vector<bf16> x, router;
};

Carried carry(const MoeShape& s, int tokens, const std::vector<float>& logits) {
  constexpr float kRest = 1.0f / 256;
  const auto n = static_cast<size_t>(s.experts), width = static_cast<size_t>(s.hidden);
  std::mt19937_64 random(12);
  std::normal_distribution<float> normal;
  std::vector<bf16> pattern(8192 + width);
  for (bf16& v : pattern) v = to_bf16(normal(random));
  Carried c{std::vector<bf16>(static_cast<size_t>(tokens) * width), std::vector<bf16>(n * width, to_bf16(0.0f))};
  for (size_t t = 0; t < static_cast<size_t>(tokens); ++t) {
    bf16* const row = c.x.data() + t * width;
    std::copy_n(pattern.begin() + static_cast<std::ptrdiff_t>(t * 37 % 8192), width, row);
    for (size_t e = 0; e < n; ++e) {
      const float wanted = logits[t * n + e];
      row[e] = to_bf16(wanted);
      row[n + e] = to_bf16((wanted - to_float(row[e])) / kRest);
    }
  }
  for (size_t e = 0; e < n; ++e) c.router[e * width + e] = to_bf16(1.0f), c.router[e * width + n + e] = to_bf16(kRest);
  return c;
}

Expected<Layer> make_layer(KernelBencher& bencher, const MoeShape& s, int tokens, bool skewed, int* turns,
                           const char* format) {
  Layer l;
  l.shape = s, l.stream = bencher.stream();
  const std::vector<float> logits = choose(s, tokens, skewed);
  TERN_ASSIGN_OR_RETURN(const size_t enter, bencher.weight_bytes(2 * s.width, s.hidden, format));
  TERN_ASSIGN_OR_RETURN(const size_t leave, bencher.weight_bytes(s.hidden, s.width, format));
  l.expert_bytes = static_cast<double>(chosen_experts(s, tokens, logits)) * static_cast<double>(enter + leave);
  *turns = std::min(bencher.turns(l.expert_bytes), 4);
  const int64_t pairs = int64_t{tokens} * s.top_k;
  const Carried carried = carry(s, tokens, logits);
  TERN_ASSIGN_OR_RETURN(auto* x, bencher.values(carried.x));
  l.x = tensor2(x, DType::kBF16, tokens, s.hidden);
  TERN_ASSIGN_OR_RETURN(l.logits, bencher.zeros(DType::kF32, tokens, s.experts));
  TERN_ASSIGN_OR_RETURN(float* wanted, bencher.values(logits));
  l.wanted = tensor2(wanted, DType::kF32, tokens, s.experts);
  TERN_ASSIGN_OR_RETURN(l.ids, bencher.zeros(DType::kI32, tokens, s.top_k));
  TERN_ASSIGN_OR_RETURN(l.weights, bencher.zeros(DType::kF32, tokens, s.top_k));
  TERN_ASSIGN_OR_RETURN(const TensorView offsets, bencher.zeros(DType::kI32, 1, s.experts + 1));
  l.offsets = tensor1(offsets.data, DType::kI32, s.experts + 1);
  TERN_ASSIGN_OR_RETURN(l.row_of, bencher.zeros(DType::kI32, tokens, s.top_k));
  TERN_ASSIGN_OR_RETURN(const TensorView token_of, bencher.zeros(DType::kI32, 1, pairs));
  l.token_of = tensor1(token_of.data, DType::kI32, pairs);
  TERN_ASSIGN_OR_RETURN(l.sorted, bencher.zeros(DType::kBF16, pairs, s.hidden));
  TERN_ASSIGN_OR_RETURN(l.gate_up, bencher.zeros(DType::kF32, pairs, 2 * s.width));
  TERN_ASSIGN_OR_RETURN(l.hidden, bencher.zeros(DType::kBF16, pairs, s.width));
  // As a model has it.
  const DType type = ops::product_type(l.stream, tokens);
  TERN_ASSIGN_OR_RETURN(l.results, bencher.zeros(type, pairs, s.hidden));
  TERN_ASSIGN_OR_RETURN(l.out, bencher.zeros(DType::kF32, tokens, s.hidden));
  TERN_ASSIGN_OR_RETURN(l.router, bencher.weight_of(carried.router, s.experts, s.hidden, "f32"));
  TERN_ASSIGN_OR_RETURN(l.gate_ups, bencher.weights(int64_t{s.experts} * *turns, 2 * s.width, s.hidden, format));
  TERN_ASSIGN_OR_RETURN(l.downs, bencher.weights(int64_t{s.experts} * *turns, s.hidden, s.width, format));
  // Parts that run alone find what the parts before them leave.
  TERN_RETURN_IF_ERROR(l.permute());
  TERN_RETURN_IF_ERROR(l.whole(0));
  TERN_RETURN_IF_ERROR(bencher.device().synchronize(l.stream));
  return l;
}

enum class Part : uint8_t {
  kWhole,
  kRouter,
  kRoute,
  kPermute,
  kDispatch,
  kEnterGated,
  kEnter,
  kGate,
  kLeave,
  kCombine
};

Expected<KernelCase> make(KernelBencher& bencher, int tokens, bool skewed, Part part, const char* format = "bf16") {
  const MoeShape s;
  KernelCase c;
  TERN_ASSIGN_OR_RETURN(const Layer l, make_layer(bencher, s, tokens, skewed, &c.turns, format));
  const double t = tokens, pairs = t * s.top_k, h = static_cast<double>(s.hidden), w = static_cast<double>(s.width);
  const auto result = static_cast<double>(dtype_bytes(l.results.dtype));
  const double products = 2 * pairs * h * w;              // of one h x w weight
  const double rows = tokens > kMovedTokens ? t : pairs;  // that the first product reads
  switch (part) {
    case Part::kWhole:
      c.bytes = l.expert_bytes + h * s.experts * 4 + t * h * (2 + 4);
      c.flops = 3 * products + 2 * t * h * s.experts;
      c.run = [l](int turn) { return l.whole(turn); };
      break;
    case Part::kRouter:
      c.bytes = h * s.experts * 4 + t * (h * 2 + s.experts * 4), c.flops = 2 * t * h * s.experts;
      c.run = [l](int) { return l.multiply_router(); };
      break;
    case Part::kRoute:
      c.bytes = t * s.experts * 4 + pairs * 8;
      c.run = [l](int) { return l.route(); };
      break;
    case Part::kPermute:
      c.bytes = t * h * 2 + pairs * (h * 2 + 8);
      c.run = [l](int) { return l.permute(); };
      break;
    case Part::kDispatch:
      c.bytes = t * s.experts * 4 + pairs * 20 + (tokens > kMovedTokens ? 0 : (t + pairs) * h * 2);
      c.run = [l](int) { return l.dispatch(); };
      break;
    case Part::kEnterGated:
      c.bytes = l.expert_bytes * 2 / 3 + rows * h * 2 + pairs * w * 2, c.flops = 2 * products;
      c.run = [l](int turn) { return l.enter_gated(turn); };
      break;
    case Part::kEnter:
      c.bytes = l.expert_bytes * 2 / 3 + pairs * (h * 2 + w * 8), c.flops = 2 * products;
      c.run = [l](int turn) { return l.enter(turn); };
      break;
    case Part::kGate:
      c.bytes = pairs * w * (8 + 2);
      c.run = [l](int) { return l.gate(); };
      break;
    case Part::kLeave:
      c.bytes = l.expert_bytes / 3 + pairs * (h * result + w * 2), c.flops = products;
      c.run = [l](int turn) { return l.leave(turn); };
      break;
    case Part::kCombine:
      c.bytes = pairs * h * result + t * h * 4;
      c.run = [l](int) { return l.combine(); };
      break;
  }
  return c;
}

}  // namespace

KernelBench bench_layer_of(const char* format, int tokens) {
  return {"codes", fmt::format("{} layer 2048/768, 128 top-8, {} tokens", format, tokens),
          [=](KernelBencher& bencher) { return make(bencher, tokens, false, Part::kWhole, format); }};
}

std::vector<KernelBench> bench_experts() {
  std::vector<KernelBench> items;
  const auto add = [&](const char* what, int tokens, bool skewed, Part part) {
    items.push_back({"experts",
                     fmt::format("{} 2048/768, 128 top-8, {} tokens{}", what, tokens, skewed ? ", skewed" : ""),
                     [=](KernelBencher& bencher) { return make(bencher, tokens, skewed, part); }});
  };
  for (const int tokens : {1, 8, 16, 32, 64, 100, 256, 1024, 4096}) add("layer", tokens, false, Part::kWhole);
  for (const int tokens : {64, 1024, 4096}) add("layer", tokens, true, Part::kWhole);
  for (const int tokens : {1, 32, 1024, 4096}) {
    add("router product", tokens, false, Part::kRouter);
    add("route", tokens, false, Part::kRoute);
    add("permute", tokens, false, Part::kPermute);
    add("dispatch", tokens, false, Part::kDispatch);
    add("gate_up and gating", tokens, false, Part::kEnterGated);
    add("gate_up product", tokens, false, Part::kEnter);
    add("gating", tokens, false, Part::kGate);
    add("down product", tokens, false, Part::kLeave);
    add("combine", tokens, false, Part::kCombine);
  }
  return items;
}

}  // namespace tern::bench
