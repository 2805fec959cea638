// Latent attention over the paged cache: against the CPU, and against itself in other batches.
#include <algorithm>
#include <cstring>

#include "cuda/tests/harness.h"
#include "cuda/tests/paged.h"
#include "ops/attention.h"

namespace tern::cuda_test {
namespace {

struct LatentShape {
  DType type;
  int heads, rank, rope, block;
  std::string kernel;
};

struct LatentCase {
  LatentCase(Context& c, const LatentShape& shape, const std::vector<Row>& rows)
      : s(shape),
        batch(c, rows, s.block, 8),
        cache(c, s.type, 1, s.rank + s.rope, s.block, batch.blocks, true),
        q(c, s.type, {batch.tokens, s.heads, s.rank + s.rope}),
        out(c, s.type, {batch.tokens, s.heads, s.rank}),
        space(c, batch.tokens, s.heads, s.rank + s.rope) {
    cache.random(9);
    q.random(10);
  }
  ops::MlaAttentionParams params(bool gpu) {
    const auto v = [&](const Mirror& m) { return gpu ? m.gpu() : m.cpu(); };
    ops::MlaAttentionParams p;
    p.q = v(q), p.cache = gpu ? cache.gpu() : cache.cpu();
    p.block_table = v(batch.table), p.row_start = v(batch.start), p.context_len = v(batch.context);
    p.out = v(out), p.kv_lora_rank = s.rank, p.scale = 0.05f;
    p.max_query_len = batch.longest_query, p.max_context_len = batch.longest_context;
    p.workspace = gpu ? static_cast<void*>(space.gpu.data()) : space.cpu.data();
    return p;
  }
  LatentShape s;
  Batch batch;
  PagedCache cache;
  Mirror q, out;
  Workspace space;
};

void run_latent(Context& c, const LatentShape& s, const std::vector<Row>& rows) {
  LatentCase k(c, s, rows);
  const std::string name = title("mla_attention", s.type, {s.heads, s.rank, s.rope}) + " " +
                           std::to_string(k.batch.tokens) + " tokens of " + std::to_string(k.batch.longest_context);
  if (!c.both(name, ops::mla_attention(k.params(false), c.cpu), ops::mla_attention(k.params(true), c.gpu))) return;
  c.expect_kernel(name, s.kernel);
  compare(c, name, k.out, k.out.host(), s.type == DType::kBF16 ? 1.5 / 100 : 2e-5);
  auto memory = c.device->allocate(ops::attention_plan_bytes(c.gpu, static_cast<int>(rows.size())));
  if (!memory.ok()) return c.report(false, name, memory.error().message);
  ops::AttentionPlan plan{memory->data()};
  ops::MlaAttentionParams p = k.params(true);
  Status status = ops::attention_plan(
      {p.cache.spec, s.heads, k.batch.tokens, p.row_start, p.context_len, p.max_query_len, &plan}, c.gpu);
  p.plan = plan;
  const std::vector<char> want = k.out.copy_to_host();
  k.out.copy_to_device();  // the CPU's
  for (int layer = 0; layer < 2 && status.ok(); ++layer) status = ops::mla_attention(p, c.gpu);
  if (!status.ok()) return c.report(false, name, status.error().message);
  c.report(k.out.copy_to_host() == want, name + " planned once", "the same bits");
}

// The tokens of one sequence from `first` on, alone or behind `others` of one token, as the GPU computes them.
std::vector<char> latent_alone(Context& c, LatentCase& whole, int first, int count, int others) {
  const int heads = whole.s.heads, context = whole.batch.longest_context;
  const auto width = static_cast<size_t>(whole.batch.table.cpu().dim[1]);
  std::vector<int32_t> start{0}, lengths, tables;
  for (int r = 0; r <= others; ++r) {
    start.push_back(start.back() + (r == others ? count : 1));
    lengths.push_back(r == others ? first + count : 1 + r * 17 % context);
    for (size_t b = 0; b < width; ++b) tables.push_back(whole.batch.table.cpu().as<const int32_t>()[b]);
  }
  Mirror s(c, DType::kI32, {others + 2}), l(c, DType::kI32, {others + 1}),
      t(c, DType::kI32, {others + 1, static_cast<int64_t>(width)}),
      mixed(c, DType::kBF16, {others + count, heads, 576}), out(c, DType::kBF16, {others + count, heads, 512});
  s.fill(start), l.fill(lengths), t.fill(tables);
  mixed.random(99);
  const auto row = static_cast<size_t>(heads) * 2;
  std::memcpy(mixed.host() + static_cast<size_t>(others) * row * 576,
              whole.q.cpu().row_bytes(first - (context - whole.batch.tokens)), static_cast<size_t>(count) * row * 576);
  mixed.copy_to_device();
  ops::MlaAttentionParams p = whole.params(true);
  p.q = mixed.gpu(), p.block_table = t.gpu(), p.row_start = s.gpu(), p.context_len = l.gpu(), p.out = out.gpu();
  p.max_query_len = count;
  if (const Status status = ops::mla_attention(p, c.gpu); !status.ok()) {
    c.report(false, "latent bits", status.error().message);
  }
  const std::vector<char> all = out.copy_to_host();
  return {all.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(others) * row * 512), all.end()};
}

// As test_attention_bits, in deterministic mode: parts of units, whole units with segments joined on the way, chunks.
void latent_bits(Context& c, int heads) {
  constexpr int kContext = 2300, kTokens = 200;
  LatentCase whole(c, {DType::kBF16, heads, 512, 64, 64, ""}, {{kTokens, kContext}});
  const auto want = latent_alone(c, whole, kContext - kTokens, kTokens, 0);
  for (const int others : {0, 3, 100}) {
    for (const int count : {1, 4, 37, kTokens}) {
      const auto part = latent_alone(c, whole, kContext - count, count, others);
      c.report(std::equal(part.begin(), part.end(), want.end() - static_cast<std::ptrdiff_t>(part.size())),
               "latent bits of " + std::to_string(heads) + " heads",
               std::to_string(count) + " tokens beside " + std::to_string(others));
    }
  }
}

}  // namespace

void test_latent(Context& c) {
  const DType b = DType::kBF16;
  const std::vector<Row> decode = c.pick<Row>({{1, 64}, {1, 1100}, {1, 1}, {1, 700}, {1, 2500}}, 2),
                         mixed = c.pick<Row>({{5, 5}, {40, 200}, {0, 3}, {3, 1500}}, 2);
  const std::string own = c.hopper() ? "attention_latent_sm90" : "attention_latent";
  for (const LatentShape& s : {LatentShape{b, 128, 512, 64, 64, own},
                               {b, 16, 512, 64, 64, own},
                               {b, 5, 64, 16, 64, "attention_latent"},
                               {b, 4, 20, 10, 64, "attention_plain"},
                               {DType::kF32, 4, 32, 8, 64, "attention_plain"}}) {
    for (const auto& rows : {decode, mixed}) run_latent(c, s, rows);
  }
  if (c.smallest) return;
  run_latent(c, {b, 20, 512, 64, 128, own}, mixed);  // places in a unit stay empty; two tiles in a block
  run_latent(c, {b, 100, 512, 64, 64, own}, {{1, 1}, {2, 2300}, {1, 0}, {1, 1024}, {1, 1025}, {1, 8200}});
  std::vector<Row> crowd(70, {1, 300});  // more units than blocks: none is cut
  crowd.push_back({9, 700});
  run_latent(c, {b, 128, 512, 64, 64, own}, crowd);
  if (!c.deterministic() || !c.hopper()) return;
  for (const int heads : {66, 16}) latent_bits(c, heads);
}

}  // namespace tern::cuda_test
