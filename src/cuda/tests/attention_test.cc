// Attention over the paged cache: against the CPU, and against itself in other batches.
#include <algorithm>

#include "cuda/tests/harness.h"
#include "cuda/tests/paged.h"
#include "ops/attention.h"

namespace tern::cuda_test {
namespace {

struct Case {
  DType type;
  int heads, kv_heads, dim, block;
  std::vector<Row> rows;
  std::string kernel;
  bool channels = false;  // of codes: scales by channel, too
};

// On Hopper clusters of blocks take few units, in deterministic mode only those of decoding rows.
std::string decoding(const Context& c, const Case& k, int longest_query) {
  constexpr std::string_view kFew = "attention_decode_", kOwn = "_sm90";
  if (!k.kernel.starts_with(kFew) || !k.kernel.ends_with(kOwn)) return k.kernel;
  const int chunks = (k.heads / k.kv_heads + 15) / 16, heads = (k.heads / k.kv_heads + chunks - 1) / chunks;
  const int tokens = (heads > 8 || longest_query > 8 / heads ? 16 : 8) / heads;
  if (c.deterministic() && longest_query > tokens) return k.kernel;
  const int units = static_cast<int>(k.rows.size()) * k.kv_heads * chunks;
  // Clusters of two that an H200 has room for: of one, two or three blocks of a multiprocessor.
  const bool three = k.kernel.find("_codes") != std::string::npos && heads * tokens <= 8;
  if (units > (k.dim == 256 ? 66 : three ? 198 : 132)) return k.kernel;
  return (c.deterministic() ? "attention_decode_deterministic_" : "attention_decode_cluster_") +
         k.kernel.substr(kFew.size());
}

std::vector<float> channel_scales(int count) {
  std::vector<float> scales;
  for (int i = 0; i < count; ++i) scales.push_back(0.25f + static_cast<float>(i * 37 % 64) / 64);
  return scales;
}

void run(Context& c, const Case& k, DType q_type) {
  Batch batch(c, k.rows, k.block, 5);
  PagedCache cache(c, k.type, k.kv_heads, k.dim, k.block, batch.blocks);
  cache.random(6);
  Mirror q(c, q_type, {batch.tokens, k.heads, k.dim}), out(c, q_type, {batch.tokens, k.heads * k.dim});
  q.random(7);
  Mirror scales(c, DType::kF32, {2 * k.kv_heads * k.dim});
  scales.fill(channel_scales(2 * k.kv_heads * k.dim));
  Workspace space(c, std::max(batch.tokens, 1), k.heads, k.dim);
  const std::string name = title("attention", k.type, {k.heads, k.kv_heads, k.dim}) + " " +
                           std::to_string(batch.tokens) + " tokens of " + std::to_string(batch.longest_context);
  const auto params = [&](bool gpu) {
    const auto v = [&](const Mirror& m) { return gpu ? m.gpu() : m.cpu(); };
    ops::AttentionParams p;
    p.q = v(q), p.cache = gpu ? cache.gpu() : cache.cpu();
    const auto* channel = v(scales).as<const float>();
    if (k.channels) p.cache.scales = {channel, channel + k.kv_heads * k.dim, true};
    p.block_table = v(batch.table), p.row_start = v(batch.start), p.context_len = v(batch.context);
    p.out = v(out);
    p.scale = 1.0f / 8.0f;
    p.max_query_len = batch.longest_query, p.max_context_len = batch.longest_context;
    for (const Row& r : k.rows) p.long_context += r.queries > 1 ? r.context : 0;
    p.workspace = gpu ? static_cast<void*>(space.gpu.data()) : space.cpu.data();
    return p;
  };
  if (!c.both(name, ops::attention(params(false), c.cpu), ops::attention(params(true), c.gpu))) return;
  if (batch.tokens > 0) c.expect_kernel(name, decoding(c, k, batch.longest_query));
  compare(c, name, out, out.host(), k.type == DType::kBF16 || q_type == DType::kBF16 ? 1.5 / 100 : 2e-5);
  // With a plan that two layers share.
  auto memory = c.device->allocate(ops::attention_plan_bytes(c.gpu, static_cast<int>(k.rows.size())));
  if (!memory.ok()) return c.report(false, name, memory.error().message);
  ops::AttentionPlan plan{memory->data()};
  ops::AttentionParams p = params(true);
  Status status = ops::attention_plan(
      {p.cache.spec, k.heads, batch.tokens, p.row_start, p.context_len, p.max_query_len, &plan, p.long_context}, c.gpu);
  p.plan = plan;
  const std::vector<char> want = out.copy_to_host();
  out.copy_to_device();  // the CPU's
  for (int layer = 0; layer < 2 && status.ok(); ++layer) status = ops::attention(p, c.gpu);
  if (!status.ok()) return c.report(false, name, status.error().message);
  c.report(out.copy_to_host() == want, name + " planned once", "the same bits");
}

// Rows of one token, of lengths all over [0, most].
std::vector<Row> ragged(int count, int most) {
  std::vector<Row> rows;
  for (int i = 0; i < count; ++i) rows.push_back({1, i * 1237 % most});
  return rows;
}

// Whether long prompts go to the kernel for Hopper: not in deterministic mode, not with the shared memory of older
// cards.
bool hopper(const Context& c) { return c.hopper() && !c.deterministic(); }

// The last `queries` tokens of one sequence of `context`, alone or beside others, as the GPU computes them.
std::vector<char> alone(Context& c, PagedCache& cache, const Mirror& q, const Mirror& table, int context, int first,
                        int count, int others, int heads, int dim, device::Buffer& space) {
  std::vector<int32_t> start{0}, lengths;
  const auto width = static_cast<size_t>(table.cpu().dim[1]);
  std::vector<int32_t> tables;
  for (int r = 0; r <= others; ++r) {
    start.push_back(start.back() + (r == others ? count : 1));
    lengths.push_back(r == others ? first + count : 1 + r * 17 % context);
    for (size_t b = 0; b < width; ++b) tables.push_back(table.cpu().as<const int32_t>()[b]);
  }
  Mirror s(c, DType::kI32, {others + 2}), l(c, DType::kI32, {others + 1}),
      t(c, DType::kI32, {others + 1, static_cast<int64_t>(width)}),
      mixed(c, DType::kBF16, {others + count, heads, dim}), out(c, DType::kBF16, {others + count, heads * dim});
  s.fill(start), l.fill(lengths), t.fill(tables);
  mixed.random(99);
  const auto row = static_cast<size_t>(heads * dim) * 2;
  std::memcpy(mixed.host() + static_cast<size_t>(others) * row, q.cpu().row_bytes(first),
              static_cast<size_t>(count) * row);
  mixed.copy_to_device();
  ops::AttentionParams p;
  p.q = mixed.gpu(), p.cache = cache.gpu(), p.block_table = t.gpu(), p.row_start = s.gpu(), p.context_len = l.gpu();
  p.out = out.gpu(), p.scale = 0.1f, p.max_query_len = count, p.max_context_len = context, p.workspace = space.data();
  const Status status = ops::attention(p, c.gpu);
  if (!status.ok()) c.report(false, "attention bits", status.error().message);
  const std::vector<char> all = out.copy_to_host();
  return {all.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(others) * row), all.end()};
}

// `few`, `many`: names of kernels by width of a head.
template <class Few, class Many>
void clusters_and_chunks(Context& c, const Few& few, const Many& many) {
  const DType b = DType::kBF16;
  // Clusters of every size; contexts of less tiles than a cluster has blocks, and so long that units are in parts.
  for (const auto& [count, most] : {std::pair{7, 9000}, {13, 5000}, {27, 3000}, {55, 2000}}) {
    run(c, {b, 16, 2, 128, 64, ragged(count, most), few(128)}, b);
    run(c, {b, 10, 2, 64, 128, ragged(count, 1100), few(64)}, b);
  }
  run(c, {b, 10, 2, 256, 64, ragged(13, 5000), few(256)}, b);
  run(c, {b, 12, 2, 128, 64, {{2, 12000}, {1, 300}, {2, 2}, {1, 0}}, few(128)}, b);
  // Short chunks behind long contexts.
  for (const int dim : {64, 128}) {
    run(c, {b, 16, 2, dim, 64, {{64, 1024}}, many(dim)}, b);
    run(c, {b, 32, 8, dim, 64, {{64, 9001}, {1, 700}, {40, 2000}}, many(dim)}, b);
    run(c, {b, 28, 4, dim, 128, {{17, 5000}, {23, 23}}, many(dim)}, b);
  }
}

// Decoding rows over codes: clusters of every size, parts of long units, rows without a context, groups of up to 16
// queries, more units than clusters take.
template <class Few>
void code_ranges(Context& c, DType type, const Few& few) {
  const DType b = DType::kBF16;
  for (const int dim : {64, 128}) {
    for (const auto& [count, most] : {std::pair{3, 9000}, {13, 5000}, {27, 3000}, {55, 1000}})
      run(c, {type, 8, 2, dim, 64, ragged(count, most), few(dim)}, b);
    run(c, {type, 28, 2, dim, 128, ragged(7, 3000), few(dim)}, b);
    run(c, {type, 28, 2, dim, 64, ragged(140, 500), few(dim)}, b);
    run(c, {type, 40, 1, dim, 64, {{1, 700}, {1, 65}}, few(dim)}, b);  // a group wider than the tile
    run(c, {type, 4, 2, dim, 64, std::vector<Row>(180, {2, 129}), few(dim)}, b);
    run(c, {type, 8, 2, dim, 64, std::vector<Row>(150, {1, 0}), few(dim)}, b);
  }
}

// Caches of codes.
void codes(Context& c, const std::vector<Row>& decode, const std::vector<Row>& mixed) {
  const DType b = DType::kBF16;
  const auto portable = [](int dim) { return "attention_decode_" + std::to_string(dim) + "_codes"; };
  const auto few = [&](int dim) { return portable(dim) + (hopper(c) && dim <= 128 ? "_sm90" : ""); };
  const auto many = [&](int dim) {
    const std::string name = std::to_string(dim);
    if (c.deterministic()) return few(dim);
    return hopper(c) && dim <= 128 ? "attention_prefill_" + name + "_sm90" : "attention_" + name + "_codes";
  };
  for (const DType type : {DType::kI8, DType::kF8E4M3}) {
    for (const int dim : {64, 128, 256}) {
      run(c, {type, 8, 2, dim, 64, decode, few(dim)}, b);
      run(c, {type, 8, 2, dim, 64, mixed, many(dim)}, b);
      run(c, {type, 8, 2, dim, 64, decode, few(dim), true}, b);
    }
    run(c, {type, 6, 3, 80, 16, decode, portable(128)}, b);
    run(c, {type, 6, 3, 80, 16, mixed, c.deterministic() ? portable(128) : "attention_128_codes"}, b);
    run(c, {type, 12, 1, 48, 32, mixed, c.deterministic() ? portable(64) : "attention_64_codes"}, b);
    run(c, {type, 6, 3, 80, 64, mixed, "attention_plain"}, DType::kF32);
    if (c.smallest) continue;
    run(c, {type, 32, 8, 128, 64, {{1, 9000}}, few(128)}, b);
    run(c, {type, 16, 2, 128, 128, ragged(110, 2100), few(128)}, b);
    code_ranges(c, type, few);
    run(c, {type, 8, 2, 128, 64, {{600, 1700}, {1, 0}, {1, 70}}, many(128)}, b);
    run(c, {type, 128, 1, 64, 64, {{66, 130}, {1, 70}}, many(64)}, b);
    // So much context that bfloat16 pages have room for some KV heads at a time.
    if (hopper(c)) run(c, {type, 16, 8, 128, 64, {{70, 18000}, {300, 18000}, {1, 100}}, many(128)}, b);
  }
}

}  // namespace

void test_attention(Context& c) {
  const DType b = DType::kBF16, f = DType::kF32;
  // The first two rows of each are enough for every branch of a kernel: a split context and a ragged tile.
  const std::vector<Row> decode = c.pick<Row>({{1, 65}, {1, 1025}, {1, 1}, {1, 64}, {1, 700}, {1, 1023}, {1, 3000}}, 2);
  const std::vector<Row> mixed = c.pick<Row>({{5, 5}, {70, 200}, {0, 10}, {1, 130}, {3, 1500}, {33, 33}}, 3);
  const auto portable = [](int dim) { return "attention_decode_" + std::to_string(dim); };
  const auto few = [&](int dim) { return portable(dim) + (c.hopper() ? "_sm90" : ""); };
  // Deterministic mode has one kernel for all rows.
  const auto many = [&](int dim) {
    const std::string name = std::to_string(dim);
    return c.deterministic()         ? few(dim)
           : hopper(c) && dim <= 128 ? "attention_prefill_" + name + "_sm90"
                                     : "attention_" + name;
  };
  const auto odd = [&](int dim) { return c.deterministic() ? portable(dim) : "attention_" + std::to_string(dim); };
  for (const int dim : {64, 128, 256}) {
    for (const int group : c.pick<int>({4, 1, 7, 16}, 1)) {
      run(c, {b, 2 * group, 2, dim, 64, decode, few(dim)}, b);
      run(c, {b, 2 * group, 2, dim, 64, mixed, many(dim)}, b);
    }
  }
  run(c, {b, 12, 1, 72, 64, mixed, odd(128)}, b);
  run(c, {b, 6, 3, 80, 64, decode, portable(128)}, f);
  run(c, {b, 6, 3, 40, 16, mixed, odd(64)}, f);
  run(c, {b, 4, 2, 192, 64, mixed, odd(256)}, b);
  run(c, {b, 6, 3, 128, 128, decode, few(128)}, f);
  run(c, {b, 40, 1, 128, 64, decode, few(128)}, b);  // a group wider than the tile
  run(c, {f, 4, 2, 64, 64, mixed, "attention_plain"}, f);
  for (const int dim : {64, 128}) run(c, {b, 128, 1, dim, 64, {{66, 130}, {1, 70}}, many(dim)}, b);
  // More units than clusters of blocks take.
  for (const int dim : c.hopper() ? std::vector<int>{64, 128, 256} : std::vector<int>{})
    run(c, {b, 4, 2, dim, 64, std::vector<Row>(70, {1, 70}), few(dim)}, b);
  codes(c, decode, mixed);
  if (c.smallest) return;
  run(c, {b, 32, 8, 128, 64, {{1, 9000}}, few(128)}, b);
  run(c, {b, 8, 1, 128, 64, {{1, 65536}}, few(128)}, b);                       // every block has part of one unit
  run(c, {b, 16, 4, 128, 64, std::vector<Row>(150, {1, 2000}), few(128)}, b);  // enough for long items
  run(c, {b, 16, 2, 128, 64, ragged(110, 2100), few(128)}, b);  // ranges that begin anywhere in their units
  run(c, {b, 8, 2, 64, 64, ragged(31, 5000), few(64)}, b);
  run(c, {b, 4, 2, 128, 64, {{8, 2050}, {2, 2}}, few(128)}, b);
  run(c, {b, 8, 2, 128, 64, {{600, 1700}}, many(128)}, b);
  run(c, {b, 4, 2, 128, 64, {{2, 0}, {1, 70}}, few(128)}, b);  // padding: no context
  // Long prompts: pages that end anywhere, rows of one token among them, a group that leaves places in a unit empty.
  const std::vector<Row> prompts{{300, 300}, {0, 9}, {1, 1000}, {213, 1047}, {64, 64}, {129, 257}};
  for (const int dim : {64, 128}) {
    run(c, {b, 32, 8, dim, 64, prompts, many(dim)}, b);
    run(c, {b, 14, 2, dim, 128, prompts, many(dim)}, b);
    run(c, {b, 10, 2, dim, 64, prompts, many(dim)}, b);
    // More than one turn of every block; the last is dealt out in parts.
    if (hopper(c)) run(c, {b, 32, 8, dim, 64, {{1300, 1300}, {300, 1500}, {700, 700}}, many(dim)}, b);
  }
  if (!c.hopper()) return;
  clusters_and_chunks(c, few, many);
}

// Decoding rows of more units than clusters of blocks: ranges, of which most begin inside a unit; up to 8 queries of a
// KV head and up to 16.
void test_attention_ranges(Context& c) {
  if (c.smallest || !c.hopper()) return;
  const DType b = DType::kBF16;
  for (const int dim : {64, 128, 256}) {
    const std::string few = "attention_decode_" + std::to_string(dim) + "_sm90";
    run(c, {b, 8, 2, dim, 64, ragged(150, 700), few}, b);
    run(c, {b, 28, 2, dim, 128, ragged(140, 500), few}, b);
    run(c, {b, 4, 2, dim, 64, std::vector<Row>(180, {2, 129}), few}, b);
    run(c, {b, 8, 2, dim, 64, std::vector<Row>(150, {1, 0}), few}, b);  // no context at all
  }
}

namespace {

// A token's result does not depend on its chunk, its neighbours, or on how the work is cut: in deterministic mode at
// all, otherwise among rows that the same kernel takes and cuts alike.
void attention_bits(Context& c, int context, DType type = DType::kBF16) {
  constexpr int kHeads = 8, kKv = 2;
  for (const int dim : {64, 128, 256}) {
    if (!c.own_turn()) continue;
    const bool own = hopper(c) && (type == DType::kBF16 || dim <= 128);
    const std::vector<Row> one{{context, context}};
    Batch batch(c, one, 64, 3);
    PagedCache cache(c, type, kKv, dim, 64, batch.blocks);
    cache.random(4);
    Mirror q(c, DType::kBF16, {context, kHeads, dim});
    q.random(5);
    Workspace space(c, std::max(4096, context), kHeads, dim);
    const auto whole = alone(c, cache, q, batch.table, context, 0, context, 0, kHeads, dim, space.gpu);
    const auto row = static_cast<size_t>(kHeads * dim) * 2;
    const std::vector<int> counts = c.smallest                                  ? std::vector<int>{37}
                                    : c.deterministic()                         ? std::vector<int>{1, 4, 37, 500}
                                    : dim <= 128 && own && type == DType::kBF16 ? std::vector<int>{1601, 1900, 2299}
                                                                                : std::vector<int>{37, 500};
    const auto last = alone(c, cache, q, batch.table, context, context - 1, 1, 0, kHeads, dim, space.gpu);
    for (const int others : c.pick<int>(own ? std::vector<int>{3, 1} : std::vector<int>{3, 1, 200}, 1)) {
      const auto part = alone(c, cache, q, batch.table, context, context - 4, 4, others, kHeads, dim, space.gpu);
      c.report(std::equal(last.begin(), last.end(), part.end() - static_cast<std::ptrdiff_t>(row)),
               "attention bits of " + std::to_string(dim), "few tokens beside " + std::to_string(others));
    }
    for (const int others :
         c.pick<int>(c.deterministic() ? std::vector<int>{3, 0, 15, 30, 200} : std::vector<int>{3, 0, 200}, 1)) {
      for (const int count : counts) {
        const int first = context - count;
        const auto part = alone(c, cache, q, batch.table, context, first, count, others, kHeads, dim, space.gpu);
        const bool same = std::equal(part.begin(), part.end(),
                                     whole.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(first) * row));
        c.report(same, "attention bits of " + std::to_string(dim),
                 std::to_string(count) + " tokens beside " + std::to_string(others));
      }
    }
  }
}

}  // namespace

void test_attention_bits(Context& c) {
  attention_bits(c, c.smallest ? 200 : 2300);
  for (const DType type : {DType::kI8, DType::kF8E4M3}) attention_bits(c, c.smallest ? 200 : 2300, type);
  // Blocks of a cluster that take whole segments, and ranges where a unit is too long for a cluster of two.
  if (c.deterministic() && c.hopper() && !c.smallest) attention_bits(c, 5000);
}

}  // namespace tern::cuda_test
