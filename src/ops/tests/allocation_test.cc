// The step path allocates nothing: ops work in the caller's memory and on the stack.
#include <gtest/gtest.h>

#include <atomic>

#include "ops/backend.h"
#include "ops/tests/op_test_util.h"

namespace {
std::atomic<long> g_allocations{0};
void count_new() { g_allocations.fetch_add(1, std::memory_order_relaxed); }
}  // namespace
#include "base/tests/counted_new.h"

namespace tern::ops {
namespace {

TEST(Allocations, NoneInAStep) {
  Threads pool(2);
  const auto s = pool.stream();
  auto device = device::make_cpu_device({1, false});
  const int64_t t = 20, h = 64;
  auto w = pack_weight(**device, *find_weight_format(device::DeviceKind::kCpu, "bf16"),
                       random_values(DType::kBF16, {4 * h, h}, 1).view());
  std::vector<PackedWeight> experts;
  experts.push_back(std::move(*w));
  Values x = random_values(DType::kBF16, {t, h}, 2), r = x, qkv(DType::kBF16, {t, 4 * h}),
         out(DType::kBF16, {t, 2 * h});
  const Values norm = random_values(DType::kBF16, {h}, 3), cos = random_values(DType::kF32, {t, 16}, 4);
  KvSpec spec;
  spec.arrangement = KvArrangement::kCpuPacked, spec.layers = 1, spec.kv_heads = 2,
  spec.head_dim_k = spec.head_dim_v = 32;
  std::vector<char> cache(spec.block_bytes() * 12);
  std::vector<int64_t> slots;
  for (int64_t i = 0; i < t; ++i) slots.push_back(64 + 600 - t + i);
  const Values slot = slot_values(slots), starts = int_values({0, 20}), context = int_values({600});
  Values table(DType::kI32, {1, 10}), offsets(DType::kI32, {2}), ids(DType::kI32, {t, 1}), row_of(DType::kI32, {t, 1});
  for (int b = 0; b < 10; ++b) table.at<int32_t>(0, b) = b + 1;
  const Values logits = random_values(DType::kF32, {t, 1}, 5);
  Values weights(DType::kF32, {t, 1}), moved(DType::kBF16, {t, h}), token = int_values(std::vector<int32_t>(20, 3));
  std::vector<char> workspace(attention_workspace(s, 20, 4, 32));
  QkvPrepareParams q;
  q.qkv = qkv.view(), q.heads = 4, q.kv_heads = 2, q.head_dim = 32, q.cos = q.sin = cos.view();
  q.cache = {cache.data(), spec.block_bytes(), spec}, q.slot_mapping = slot.view();
  AttentionParams a;
  a.q = qkv.view().columns(0, 2 * h).split(4, 32), a.cache = q.cache, a.block_table = table.view();
  a.row_start = starts.view(), a.context_len = context.view(), a.out = out.view(), a.workspace = workspace.data();
  MoeRouteParams route;
  route.logits = logits.view(), route.top_k = 1, route.ids = ids.view(), route.weights = weights.view();
  const auto step = [&] {
    bool ok = embedding({experts[0].valid() ? TensorView{} : x.view(), token.view(), x.view(), &experts[0]}, s).ok();
    ok &= rms_norm({x.view(), r.view(), norm.view(), x.view(), 1e-6f}, s).ok();
    ok &= linear({x.view(), &experts[0], {}, qkv.view()}, s).ok();
    ok &= qkv_prepare(q, s).ok();
    ok &= attention(a, s).ok();
    ok &= silu_mul({qkv.view(), out.view()}, s).ok();
    ok &= moe_route(route, s).ok();
    ok &= moe_permute({x.view(), ids.view(), 1, offsets.view(), row_of.view(), moved.view()}, s).ok();
    ok &= grouped_linear({moved.view(), offsets.view(), experts, qkv.view()}, s).ok();
    ok &= moe_combine({moved.view(), row_of.view(), weights.view(), {}, {}, x.view()}, s).ok();
    return ok;
  };
  ASSERT_TRUE(step());
  const long before = g_allocations.load();
  ASSERT_GT(before, 0);
  const bool ok = step();
  const long after = g_allocations.load();
  EXPECT_TRUE(ok);
  EXPECT_EQ(after, before);
}

}  // namespace
}  // namespace tern::ops
