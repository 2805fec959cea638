// Decoding as a model runs it: the plan, then for every layer the cache write and attention behind it, step after step
// with nobody waiting in between. With dependent launches attention reads old pages while the write still runs; the
// bits must be those of a device that is waited for after every op, and of one where attention does the cache write.
#include "cuda/tests/harness.h"
#include "cuda/tests/paged.h"
#include "ops/attention.h"
#include "ops/deferral.h"
#include "ops/rope.h"

namespace tern::cuda_test {
namespace {

constexpr int kBlock = 64, kLayers = 3;

struct Chain {
  int heads, kv_heads, dim;
  std::vector<int> contexts;  // before the first step
  bool interleaved = false, norms = true;
  int steps = 70;  // more than a page has places

  int rows() const { return static_cast<int>(contexts.size()); }
  int pages() const {
    int most = 0;
    for (const int n : contexts) most = std::max(most, n);
    return (most + steps + kBlock - 1) / kBlock;
  }
};

// What the steps read, one of each per step.
struct Inputs {
  Inputs(Context& c, const Chain& k, int step)
      : start(c, DType::kI32, {k.rows() + 1}),
        length(c, DType::kI32, {k.rows()}),
        slots(c, DType::kI64, {k.rows()}),
        qkv(c, DType::kF32, {k.rows(), int64_t{k.heads + 2 * k.kv_heads} * k.dim}),
        cos(c, DType::kF32, {k.rows(), k.dim / 2}),
        sin(c, DType::kF32, {k.rows(), k.dim / 2}) {
    std::vector<int32_t> starts{0}, lengths;
    std::vector<int64_t> at;
    for (int r = 0; r < k.rows(); ++r) {
      const int position = k.contexts[static_cast<size_t>(r)] + step;
      starts.push_back(r + 1), lengths.push_back(position + 1);
      at.push_back(int64_t{1 + r + position / kBlock * k.rows()} * kBlock + position % kBlock);
    }
    start.fill(starts), length.fill(lengths), slots.fill(at);
    qkv.random(static_cast<uint32_t>(100 + step));
    cos.random(static_cast<uint32_t>(200 + step)), sin.random(static_cast<uint32_t>(300 + step));
  }
  Mirror start, length, slots, qkv, cos, sin;
};

enum class How { kTogether, kAlone, kJoined };

struct Bench {
  Bench(Context& c, const Chain& k)
      : table(c, DType::kI32, {k.rows(), k.pages()}),
        q(c, DType::kBF16, {k.rows(), int64_t{k.heads} * k.dim}),
        q_norm(c, DType::kBF16, {k.dim}),
        k_norm(c, DType::kBF16, {k.dim}),
        out(c, DType::kBF16, {int64_t{k.steps} * kLayers * k.rows(), int64_t{k.heads} * k.dim}) {
    std::vector<int32_t> blocks;
    for (int r = 0; r < k.rows(); ++r) {
      for (int page = 0; page < k.pages(); ++page) blocks.push_back(1 + r + page * k.rows());
    }
    table.fill(blocks);
    q_norm.random(1), k_norm.random(2);
    for (int i = 0; i < kLayers; ++i) {
      caches.push_back(
          std::make_unique<PagedCache>(c, DType::kBF16, k.kv_heads, k.dim, kBlock, 1 + k.rows() * k.pages()));
    }
    auto a = c.device->allocate(ops::attention_workspace(c.gpu, k.rows(), k.heads, k.dim));
    auto b = c.device->allocate(ops::attention_plan_bytes(c.gpu, k.rows()));
    if (a.ok()) space = std::move(a).value();
    if (b.ok()) plan = std::move(b).value();
  }
  std::vector<char> pulled() const {
    std::vector<char> all = out.copy_to_host();
    for (const auto& cache : caches) {
      const std::vector<char> more = cache->copy_to_host();
      all.insert(all.end(), more.begin(), more.end());
    }
    return all;
  }
  Mirror table, q, q_norm, k_norm, out;
  std::vector<std::unique_ptr<PagedCache>> caches;
  device::Buffer space, plan;
};

Status step(Context& c, const Chain& k, Bench& b, const Inputs& in, int number, How how) {
  const auto done = [&](Status s) { return s.ok() && how == How::kAlone ? c.device->synchronize(c.gpu) : s; };
  ops::AttentionPlan plan{b.plan.data()};
  const KvSpec spec = b.caches[0]->gpu().spec;
  TERN_RETURN_IF_ERROR(
      done(ops::attention_plan({spec, k.heads, k.rows(), in.start.gpu(), in.length.gpu(), 1, &plan}, c.gpu)));
  for (int layer = 0; layer < kLayers; ++layer) {
    ops::QkvPrepareParams w;
    w.qkv = in.qkv.gpu(), w.heads = k.heads, w.kv_heads = k.kv_heads, w.head_dim = k.dim;
    w.cache = b.caches[static_cast<size_t>(layer)]->gpu(), w.slot_mapping = in.slots.gpu(), w.q = b.q.gpu();
    w.cos = in.cos.gpu(), w.sin = in.sin.gpu();
    w.style = k.interleaved ? ops::RopeStyle::kInterleaved : ops::RopeStyle::kHalfSplit;
    if (k.norms) w.q_norm = b.q_norm.gpu(), w.k_norm = b.k_norm.gpu();
    TERN_RETURN_IF_ERROR(done(ops::qkv_prepare(w, c.gpu)));
    ops::AttentionParams p;
    p.q = b.q.gpu().split(k.heads, k.dim), p.cache = w.cache, p.block_table = b.table.gpu();
    p.row_start = in.start.gpu(), p.context_len = in.length.gpu(), p.scale = 0.5f;
    p.max_query_len = 1, p.max_context_len = k.pages() * kBlock;
    const int64_t row = (int64_t{number} * kLayers + layer) * k.rows();
    p.out = b.out.gpu().first(k.rows());
    p.out.data = b.out.gpu().row_bytes(row);
    p.workspace = b.space.data(), p.plan = plan;
    TERN_RETURN_IF_ERROR(done(ops::attention(p, c.gpu)));
  }
  return {};
}

// What all layers of all steps leave, and the caches.
std::vector<char> run(Context& c, const Chain& k, Bench& b, const std::vector<std::unique_ptr<Inputs>>& inputs,
                      How how) {
  for (size_t i = 0; i < b.caches.size(); ++i) b.caches[i]->random(static_cast<uint32_t>(7 + i));
  for (int i = 0; i < k.steps; ++i) {
    if (how == How::kJoined) ops::begin_deferral(c.gpu, k.rows());
    Status s = step(c, k, b, *inputs[static_cast<size_t>(i)], i, how);
    if (how == How::kJoined) {
      if (Status closed = ops::end_deferral(c.gpu); s.ok()) s = closed;
    }
    if (!s.ok()) c.report(false, "chain", s.error().message);
  }
  if (const Status s = c.device->synchronize(c.gpu); !s.ok()) c.report(false, "chain", s.error().message);
  return b.pulled();
}

void chain(Context& c, const Chain& k) {
  const std::string name = title("decoding", DType::kBF16, {k.heads, k.kv_heads, k.dim, k.rows()});
  Bench bench(c, k);
  std::vector<std::unique_ptr<Inputs>> inputs;
  for (int i = 0; i < k.steps; ++i) inputs.push_back(std::make_unique<Inputs>(c, k, i));
  const std::vector<char> alone = run(c, k, bench, inputs, How::kAlone);
  c.report(run(c, k, bench, inputs, How::kTogether) == alone, name, "the same bits");
  bench.q.random(3);  // which is left alone where attention makes its queries
  const std::vector<char> before = bench.q.copy_to_host();
  c.report(run(c, k, bench, inputs, How::kJoined) == alone, name + " joined", "the same bits");
  const bool joined = c.hopper() && k.dim <= 128 && (k.rows() > 1 || k.heads <= 16);
  c.report((bench.q.copy_to_host() == before) == joined, name + " joined", joined ? "q is not made" : "q is made");
}

}  // namespace

void test_chain(Context& c) {
  for (Chain k : {Chain{16, 2, 128, {0}, true, false}, Chain{16, 2, 128, {500, 64, 63}, true, false},
                  Chain{8, 2, 64, {63, 1, 1000}, true}, Chain{32, 8, 128, {64, 900, 127}}, Chain{4, 1, 256, {30, 2000}},
                  Chain{32, 8, 128, {200}},               // one row of many heads
                  Chain{24, 2, 64, {5, 300}},             // twelve queries of a KV head
                  Chain{40, 2, 128, {62, 700, 1}, true},  // twenty: two units
                  Chain{64, 64, 128, {5, 70, 3}}}) {      // more units than clusters
    if (c.smallest) k.steps = 2;
    chain(c, k);
  }
}

}  // namespace tern::cuda_test
