#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "kernels/cpu/isa.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/op_check.h"

namespace tern::ops::cpu {
namespace {

constexpr int64_t kMaxExperts = 2048;  // of one layer; scores of a token live on the stack
constexpr float kExcluded = -std::numeric_limits<float>::infinity();

// scores[e] from logits[e], float32 with the sum in double.
void score(const float* logits, int64_t experts, MoeScoring scoring, float* scores) {
  if (scoring == MoeScoring::kSigmoid) {
    for (int64_t e = 0; e < experts; ++e) scores[e] = 1.0f / (1.0f + std::exp(-logits[e]));
    return;
  }
  const float top = *std::max_element(logits, logits + experts);
  double sum = 0.0;
  for (int64_t e = 0; e < experts; ++e) {
    scores[e] = std::exp(logits[e] - top);
    sum += static_cast<double>(scores[e]);
  }
  const auto total = static_cast<float>(sum);
  for (int64_t e = 0; e < experts; ++e) scores[e] /= total;
}

// The index of the largest of z[begin, end) that is not taken; the lower index wins ties. Never fails, NaN or not.
int64_t best_of(const float* z, const bool* taken, int64_t begin, int64_t end) {
  int64_t best = -1;
  for (int64_t i = begin; i < end; ++i) {
    if (!taken[i] && (best < 0 || z[i] > z[best])) best = i;
  }
  return best;
}

// Leaves the experts of all but the best topk_group groups out of the choice.
void limit_groups(const MoeRouteParams& p, int64_t experts, float* z) {
  const int64_t size = experts / p.n_group;
  float group[kMaxExperts];
  bool kept[kMaxExperts] = {};
  for (int64_t g = 0; g < p.n_group; ++g) {
    float first = kExcluded, second = kExcluded;
    for (int64_t e = g * size; e < (g + 1) * size; ++e) {
      if (z[e] > first) {
        second = first, first = z[e];
      } else if (z[e] > second) {
        second = z[e];
      }
    }
    group[g] = p.bias.data != nullptr && size > 1 ? first + second : first;
  }
  for (int i = 0; i < p.topk_group; ++i) kept[best_of(group, kept, 0, p.n_group)] = true;
  for (int64_t e = 0; e < experts; ++e) {
    if (!kept[e / size]) z[e] = kExcluded;
  }
}

struct Columns {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
};

// The experts that a token may choose from.
Columns bank_of(const MoeRouteParams& p, int64_t t) {
  const int64_t experts = p.logits.dim[1];
  if (p.split < 0) return {0, experts};
  return p.second.contains(p.token_ids.as<const int32_t>()[t]) ? Columns{p.split, experts} : Columns{0, p.split};
}

void route_token(const MoeRouteParams& p, int64_t t) {
  const Columns bank = bank_of(p, t);
  const int64_t experts = bank.size();
  auto* ids = reinterpret_cast<int32_t*>(p.ids.row_bytes(t));
  auto* weights = reinterpret_cast<float*>(p.weights.row_bytes(t));
  if (experts == 0) {
    for (int j = 0; j < p.top_k; ++j) ids[j] = static_cast<int32_t>(p.logits.dim[1]), weights[j] = j == 0 ? 1.0f : 0.0f;
    return;
  }
  float scores[kMaxExperts], z[kMaxExperts];
  score(reinterpret_cast<const float*>(p.logits.row_bytes(t)) + bank.begin, experts, p.scoring, scores);
  if (!p.forced) {
    const float* bias = p.bias.data == nullptr ? nullptr : p.bias.as<const float>() + bank.begin;
    for (int64_t e = 0; e < experts; ++e) z[e] = bias == nullptr ? scores[e] : scores[e] + bias[e];
    if (p.n_group > 1 && p.topk_group < p.n_group) limit_groups(p, experts, z);
    bool taken[kMaxExperts] = {};
    for (int j = 0; j < p.top_k; ++j) {
      const int64_t e = best_of(z, taken, 0, experts);
      taken[e] = true;
      ids[j] = static_cast<int32_t>(bank.begin + e);
    }
  }
  float sum = 0.0f;
  for (int j = 0; j < p.top_k; ++j) sum += weights[j] = scores[ids[j] - bank.begin];
  if (p.renorm_min > 0.0f && !(sum > p.renorm_min)) sum = p.renorm_min;
  const float divisor = p.renormalize ? sum + p.renorm_eps : 1.0f;
  for (int j = 0; j < p.top_k; ++j) weights[j] = weights[j] / divisor * p.scale;
}

Status check_banks(const MoeRouteParams& p) {
  constexpr const char* kOp = "moe_route";
  const int64_t experts = p.logits.dim[1];
  TERN_OP_CHECK(kOp, p.split <= experts && p.n_group == 1,
                "two banks of experts must divide the columns, in one group");
  TERN_OP_CHECK(kOp, p.split == 0 || p.top_k <= p.split, "top_k is larger than the first bank");
  TERN_OP_CHECK(kOp, p.split == experts || p.top_k <= experts - p.split, "top_k is larger than the second bank");
  TERN_OP_CHECK(kOp, is_vector(p.token_ids, DType::kI32, p.logits.dim[0]), "token_ids must be [T] int32");
  TERN_OP_CHECK(kOp, p.second.listed >= 0 && p.second.listed <= TokenSet::kMaxListed, "the token set is malformed");
  return {};
}

}  // namespace

Status moe_route(const MoeRouteParams& p, device::Stream stream) {
  constexpr const char* kOp = "moe_route";
  const int64_t n = p.logits.dim[0], experts = p.logits.dim[1];
  TERN_OP_CHECK(kOp, p.logits.dtype == DType::kF32 && p.logits.rank == 2 && is_rows(p.logits),
                "logits must be [T, E] float32");
  TERN_OP_CHECK(kOp, experts <= kMaxExperts, "there are more than 2048 experts");
  TERN_OP_CHECK(kOp, p.bias.data == nullptr || is_vector(p.bias, DType::kF32, experts), "bias must be [E] float32");
  TERN_OP_CHECK(kOp, p.top_k >= 1 && (p.split >= 0 || p.top_k <= experts), "top_k is out of range");
  TERN_OP_CHECK(kOp, p.n_group >= 1 && experts % p.n_group == 0 && p.topk_group >= 1 && p.topk_group <= p.n_group,
                "the groups do not divide the experts");
  TERN_OP_CHECK(kOp, p.split >= 0 || p.n_group == 1 || p.top_k <= experts / p.n_group * p.topk_group,
                "top_k is larger than the chosen groups");
  TERN_OP_CHECK(kOp, p.ids.dtype == DType::kI32 && is_matrix(p.ids, n, p.top_k), "ids must be [T, top_k] int32");
  TERN_OP_CHECK(kOp, p.weights.dtype == DType::kF32 && is_matrix(p.weights, n, p.top_k),
                "weights must be [T, top_k] float32");
  if (p.split >= 0) TERN_RETURN_IF_ERROR(check_banks(p));
  for (int64_t t = 0; p.forced && t < n; ++t) {
    const Columns bank = bank_of(p, t);
    const auto* ids = reinterpret_cast<const int32_t*>(p.ids.row_bytes(t));
    for (int j = 0; bank.size() > 0 && j < p.top_k; ++j)
      TERN_OP_CHECK(kOp, ids[j] >= bank.begin && ids[j] < bank.end, "an expert is out of range");
  }
  for_ranges(stream, n, row_grain(experts * (8 + p.top_k)), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) route_token(p, t);
  });
  return {};
}

Status moe_permute(const MoePermuteParams& p, device::Stream stream) {
  constexpr const char* kOp = "moe_permute";
  const int64_t n = p.x.dim[0], top_k = p.ids.dim[1];
  TERN_OP_CHECK(kOp, is_act(p.x.dtype) && p.x.rank == 2 && is_rows(p.x), "x must be [T, H]");
  TERN_OP_CHECK(kOp, p.ids.dtype == DType::kI32 && is_matrix(p.ids, n, top_k), "ids must be [T, top_k] int32");
  TERN_OP_CHECK(kOp, p.experts >= 1 && is_vector(p.offsets, DType::kI32, p.experts + int64_t{1}),
                "offsets must be [E + 1] int32");
  TERN_OP_CHECK(kOp, p.row_of.dtype == DType::kI32 && is_matrix(p.row_of, n, top_k), "row_of must be [T, top_k] int32");
  TERN_OP_CHECK(kOp, p.out.dtype == p.x.dtype && is_matrix(p.out, n * top_k, p.x.dim[1]), "out must be [T * top_k, H]");
  auto* offsets = p.offsets.as<int32_t>();
  std::fill(offsets, offsets + p.experts + 1, 0);
  auto id_row = [&](int64_t t) { return reinterpret_cast<const int32_t*>(p.ids.row_bytes(t)); };
  for (int64_t t = 0; t < n; ++t) {
    for (int64_t j = 0; j < top_k; ++j) {
      const int32_t e = id_row(t)[j];
      TERN_OP_CHECK(kOp, e >= 0 && e < p.experts, "an expert is out of range");
      ++offsets[e + 1];
    }
  }
  for (int e = 0; e < p.experts; ++e) offsets[e + 1] += offsets[e];
  // offsets[e] serves as the cursor of expert e and ends where the next one began; shifted back afterwards.
  for (int64_t t = 0; t < n; ++t) {
    auto* row_of = reinterpret_cast<int32_t*>(p.row_of.row_bytes(t));
    for (int64_t j = 0; j < top_k; ++j) row_of[j] = offsets[id_row(t)[j]]++;
  }
  for (int e = p.experts; e > 0; --e) offsets[e] = offsets[e - 1];
  offsets[0] = 0;
  const size_t bytes = static_cast<size_t>(p.x.dim[1]) * dtype_bytes(p.x.dtype);
  for_ranges(stream, n, row_grain(top_k * p.x.dim[1]), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const auto* row_of = reinterpret_cast<const int32_t*>(p.row_of.row_bytes(t));
      for (int64_t j = 0; j < top_k; ++j) std::memcpy(p.out.row_bytes(row_of[j]), p.x.row_bytes(t), bytes);
    }
  });
  return {};
}

Status moe_combine(const MoeCombineParams& p, device::Stream stream) {
  constexpr const char* kOp = "moe_combine";
  const int64_t n = p.out.dim[0], h = p.out.dim[1], top_k = p.row_of.dim[1];
  TERN_OP_CHECK(kOp, is_act(p.out.dtype) && p.out.rank == 2 && is_rows(p.out), "out must be [T, H]");
  TERN_OP_CHECK(kOp, p.row_of.dtype == DType::kI32 && is_matrix(p.row_of, n, top_k), "row_of must be [T, top_k] int32");
  TERN_OP_CHECK(kOp, p.weights.dtype == DType::kF32 && is_matrix(p.weights, n, top_k), "weights must be [T, top_k]");
  TERN_OP_CHECK(kOp, (p.y.dtype == p.out.dtype || p.y.dtype == DType::kBF16) && is_matrix(p.y, p.y.dim[0], h),
                "y must be [T * top_k, H]");
  const bool shared = p.shared.data != nullptr, gated = p.shared_gate.data != nullptr;
  TERN_OP_CHECK(kOp, !shared || (p.shared.dtype == p.out.dtype && is_matrix(p.shared, n, h)), "shared must be [T, H]");
  TERN_OP_CHECK(kOp, !gated || is_vector(p.shared_gate, DType::kF32, n), "shared_gate must be [T] float32");
  for (int64_t t = 0; t < n; ++t) {
    const auto* rows = reinterpret_cast<const int32_t*>(p.row_of.row_bytes(t));
    for (int64_t j = 0; j < top_k; ++j)
      TERN_OP_CHECK(kOp, rows[j] >= 0 && rows[j] < p.y.dim[0], "row_of is out of range");
  }
  const auto& k = kernels::kernel_table();
  // Kernels have one type for all: bfloat16 results of a float32 sum are widened first.
  const bool widens = p.y.dtype != p.out.dtype;
  std::vector<int32_t> in_order(widens ? static_cast<size_t>(top_k) : 0);
  std::iota(in_order.begin(), in_order.end(), 0);
  for_ranges(stream, n, row_grain(top_k * h), [&](int64_t begin, int64_t end) {
    std::vector<float> wide(widens ? static_cast<size_t>(top_k * h) : 0);
    for (int64_t t = begin; t < end; ++t) {
      kernels::CombineRow a{};
      a.y = static_cast<const char*>(p.y.data);
      a.y_stride = p.y.stride[0] * static_cast<int64_t>(dtype_bytes(p.y.dtype));
      a.rows = reinterpret_cast<const int32_t*>(p.row_of.row_bytes(t));
      a.weights = reinterpret_cast<const float*>(p.weights.row_bytes(t));
      a.k = top_k, a.n = h;
      a.shared = shared ? p.shared.row_bytes(t) : nullptr;
      a.shared_scale = gated ? 1.0f / (1.0f + std::exp(-p.shared_gate.as<const float>()[t])) : 1.0f;
      a.out = p.out.row_bytes(t);
      a.bf16 = p.out.dtype == DType::kBF16;
      if (widens) {
        for (int64_t j = 0; j < top_k; ++j) {
          k.widen(reinterpret_cast<const uint16_t*>(p.y.row_bytes(a.rows[j])), wide.data() + j * h, h);
        }
        a.y = reinterpret_cast<const char*>(wide.data());
        a.y_stride = h * static_cast<int64_t>(sizeof(float)), a.rows = in_order.data();
      }
      k.combine_row(&a);
    }
  });
  return {};
}

Status clear_experts(const ClearExpertsParams& p, device::Stream) {
  constexpr const char* kOp = "clear_experts";
  TERN_OP_CHECK(kOp, is_act(p.x.dtype) && p.x.rank == 2 && is_rows(p.x), "x must be [S, H] of float32 or bfloat16");
  TERN_OP_CHECK(kOp, p.offsets.dim[0] > 0 && is_vector(p.offsets, DType::kI32, p.offsets.dim[0]),
                "offsets must be [E + 1] int32");
  const auto* offsets = p.offsets.as<const int32_t>();
  const int64_t begin = offsets[0], end = offsets[p.offsets.dim[0] - 1];
  TERN_OP_CHECK(kOp, begin >= 0 && begin <= end && end <= p.x.dim[0], "offsets lie outside x");
  for (int64_t r = begin; r < end; ++r)
    std::memset(p.x.row_bytes(r), 0, static_cast<size_t>(p.x.dim[1]) * dtype_bytes(p.x.dtype));
  return {};
}

}  // namespace tern::ops::cpu
