// Attention over the paged cache, latent attention and segments of pictures.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "bench/kernels.h"
#include "ops/attention.h"
#include "ops/deferral.h"
#include "ops/vision.h"

namespace tern::bench {
namespace {

constexpr int kBlock = 64;

// Queries [context - query, context) of each row.
struct PagedShape {
  std::string what;
  int heads, kv_heads, dim;
  std::vector<std::pair<int, int>> rows;  // query tokens, context
  bool in_order = false;                  // blocks lie one after the other
  int latent_rank = 0;                    // > 0: latent attention, `dim` is the row's width
  bool pass = false;                      // with what stands between the QKV product and attention
  DType cache = DType::kBF16;             // or codes, with their scales
};

struct Work {
  double bytes = 0, flops = 0;  // of one layer
  int64_t long_context = 0;
  int tokens = 0, longest_query = 0, longest_context = 0, blocks = 1;
};

Work work_of(const PagedShape& s) {
  Work w;
  const double value_dim = s.latent_rank > 0 ? s.latent_rank : s.dim;
  const double token_bytes = s.cache != DType::kBF16 ? 2.0 * s.kv_heads * (s.dim + 4.0)
                                                     : 2.0 * s.kv_heads * (s.latent_rank > 0 ? s.dim : 2 * s.dim);
  for (const auto& [query, context] : s.rows) {
    const double seen = query * (context - (query - 1) / 2.0);
    w.flops += 2.0 * s.heads * seen * (s.dim + value_dim);
    w.bytes += context * token_bytes + 2.0 * query * s.heads * (s.dim + value_dim);
    w.tokens += query;
    if (query > 1) w.long_context += context;
    w.longest_query = std::max(w.longest_query, query), w.longest_context = std::max(w.longest_context, context);
    w.blocks += (context + kBlock - 1) / kBlock;
  }
  return w;
}

struct Paged {
  TensorView block_table, row_start, context_len;
  TensorView slots;  // of each row's last token
};

// Blocks are dealt in random order, as after hours of serving; block 0 belongs to no sequence.
Expected<Paged> deal_blocks(KernelBencher& bencher, const PagedShape& s, const Work& w) {
  std::vector<int32_t> free(static_cast<size_t>(w.blocks) - 1);
  std::iota(free.begin(), free.end(), 1);
  std::mt19937_64 random(3);
  if (!s.in_order) std::shuffle(free.begin(), free.end(), random);
  const int columns = (w.longest_context + kBlock - 1) / kBlock;
  const auto rows = static_cast<int64_t>(s.rows.size());
  std::vector<int32_t> table(s.rows.size() * static_cast<size_t>(columns)), start = {0}, length;
  std::vector<int64_t> slots;
  size_t next = 0;
  for (size_t r = 0; r < s.rows.size(); ++r) {
    const auto [query, context] = s.rows[r];
    for (int b = 0; b * kBlock < context; ++b)
      table[r * static_cast<size_t>(columns) + static_cast<size_t>(b)] = free[next++];
    start.push_back(start.back() + query);
    length.push_back(context);
    slots.push_back(int64_t{free[next - 1]} * kBlock + (context - 1) % kBlock);
  }
  Paged p;
  TERN_ASSIGN_OR_RETURN(int32_t * data, bencher.values(table));
  p.block_table = tensor2(data, DType::kI32, rows, columns);
  TERN_ASSIGN_OR_RETURN(p.row_start, bencher.ints(start));
  TERN_ASSIGN_OR_RETURN(p.context_len, bencher.ints(length));
  TERN_ASSIGN_OR_RETURN(int64_t * last, bencher.values(slots));
  p.slots = tensor1(last, DType::kI64, rows);
  return p;
}

struct Buffers {
  TensorView q, out;
  void* workspace = nullptr;
  float scale = 1;
  ops::AttentionPlan plan;
};

Status run_heads(const Buffers& b, const KvLayerView& cache, const Paged& paged, const Work& w, device::Stream stream) {
  return ops::attention({.q = b.q,
                         .cache = cache,
                         .block_table = paged.block_table,
                         .row_start = paged.row_start,
                         .context_len = paged.context_len,
                         .out = b.out,
                         .scale = b.scale,
                         .max_query_len = w.longest_query,
                         .max_context_len = w.longest_context,
                         .workspace = b.workspace,
                         .plan = b.plan,
                         .long_context = w.long_context},
                        stream);
}

Status run_latent(const Buffers& b, const KvLayerView& cache, const Paged& paged, const Work& w, int rank,
                  device::Stream stream) {
  return ops::mla_attention({.q = b.q,
                             .cache = cache,
                             .block_table = paged.block_table,
                             .row_start = paged.row_start,
                             .context_len = paged.context_len,
                             .out = b.out,
                             .kv_lora_rank = rank,
                             .scale = b.scale,
                             .max_query_len = w.longest_query,
                             .max_context_len = w.longest_context,
                             .workspace = b.workspace,
                             .plan = b.plan},
                            stream);
}

// With the pass before it, deferred as in a model.
Status run_pass(ops::QkvPrepareParams p, const Buffers& b, const KvLayerView& cache, const Paged& paged, const Work& w,
                device::Stream stream) {
  p.cache = cache;
  ops::begin_deferral(stream, w.tokens);
  Status done = ops::qkv_prepare(p, stream);
  if (done.ok()) done = run_heads(b, cache, paged, w, stream);
  const Status closed = ops::end_deferral(stream);
  return done.ok() ? closed : done;
}

Expected<KernelCase> make_paged(KernelBencher& bencher, const PagedShape& s) {
  const Work w = work_of(s);
  const bool latent = s.latent_rank > 0, packed = bencher.device().info().kind == device::DeviceKind::kCpu;
  KvSpec spec;
  spec.arrangement = latent ? KvArrangement::kMlaRows : packed ? KvArrangement::kCpuPacked : KvArrangement::kHeadsKV;
  spec.dtype = s.cache, spec.kv_heads = s.kv_heads, spec.head_dim_k = s.dim, spec.head_dim_v = latent ? 0 : s.dim,
  spec.block_size = kBlock;
  KernelCase c;
  c.turns = bencher.turns(w.bytes), c.bytes = w.bytes, c.flops = w.flops;
  spec.layers = c.turns;  // each turn is a layer
  TERN_ASSIGN_OR_RETURN(const Paged paged, deal_blocks(bencher, s, w));
  TERN_ASSIGN_OR_RETURN(const TensorView cache,
                        bencher.random(DType::kBF16, w.blocks, static_cast<int64_t>(spec.block_bytes() / 2)));
  TERN_ASSIGN_OR_RETURN(const TensorView q, bencher.random(DType::kBF16, w.tokens, int64_t{s.heads} * s.dim));
  const int64_t value_dim = latent ? s.latent_rank : s.dim;
  TERN_ASSIGN_OR_RETURN(TensorView out, bencher.zeros(DType::kBF16, w.tokens, s.heads * value_dim));
  TERN_ASSIGN_OR_RETURN(char* workspace,
                        bencher.take(ops::attention_workspace(bencher.stream(), w.tokens, s.heads, s.dim)));
  const auto layer = [cache, spec, layer_bytes = static_cast<size_t>(w.blocks) * spec.layer_block_bytes()](int turn) {
    return KvLayerView{cache.as<char>() + static_cast<size_t>(turn) * layer_bytes, spec.layer_block_bytes(), spec};
  };
  if (latent) out = out.split(s.heads, value_dim);
  Buffers b{q.split(s.heads, s.dim), out, workspace, 1.0f / std::sqrt(static_cast<float>(s.dim)), {}};
  const device::Stream stream = bencher.stream();
  // Made once per step, for all layers: not part of what is timed.
  TERN_ASSIGN_OR_RETURN(b.plan.memory,
                        bencher.take(ops::attention_plan_bytes(stream, static_cast<int>(s.rows.size()))));
  TERN_RETURN_IF_ERROR(ops::attention_plan({.spec = spec,
                                            .heads = s.heads,
                                            .tokens = w.tokens,
                                            .row_start = paged.row_start,
                                            .context_len = paged.context_len,
                                            .max_query_len = w.longest_query,
                                            .plan = &b.plan,
                                            .long_context = w.long_context},
                                           stream));
  if (s.pass) {
    TERN_ASSIGN_OR_RETURN(ops::QkvPrepareParams pass,
                          qkv_prepare_params(bencher, w.tokens, s.heads, s.kv_heads, s.dim));
    pass.slot_mapping = paged.slots, pass.q = q;
    c.bytes += 4.0 * w.tokens * (s.heads + 2 * s.kv_heads) * s.dim;
    c.run = [=](int turn) { return run_pass(pass, b, layer(turn), paged, w, stream); };
    return c;
  }
  c.run = [=, rank = s.latent_rank](int turn) {
    return rank > 0 ? run_latent(b, layer(turn), paged, w, rank, stream) : run_heads(b, layer(turn), paged, w, stream);
  };
  return c;
}

Expected<KernelCase> make_segments(KernelBencher& bencher, int heads, int dim, std::vector<int32_t> lengths) {
  std::vector<int32_t> starts = {0};
  KernelCase c;
  const int64_t width = int64_t{heads} * dim;
  for (const int32_t n : lengths) {
    starts.push_back(starts.back() + n);
    c.flops += 4.0 * static_cast<double>(width) * n * n;
  }
  const int64_t rows = starts.back();
  c.bytes = static_cast<double>(rows * width) * 4 * 2;
  TERN_ASSIGN_OR_RETURN(const TensorView qkv, bencher.random(DType::kBF16, rows, 3 * width));
  TERN_ASSIGN_OR_RETURN(const TensorView out, bencher.zeros(DType::kBF16, rows, width));
  TERN_ASSIGN_OR_RETURN(const TensorView index, bencher.ints(starts));
  ops::SegmentAttentionParams p;
  p.q = qkv.columns(0, width).split(heads, dim), p.k = qkv.columns(width, 2 * width).split(heads, dim);
  p.v = qkv.columns(2 * width, 3 * width).split(heads, dim);
  p.starts = index, p.out = out;
  p.scale = 1.0f / std::sqrt(static_cast<float>(dim));
  p.max_segment = *std::max_element(lengths.begin(), lengths.end());
  p.product = DType::kBF16;
  TERN_ASSIGN_OR_RETURN(p.workspace, bencher.take(ops::segment_attention_workspace(
                                         bencher.stream(), rows, static_cast<int64_t>(lengths.size()), heads, dim)));
  c.run = [p, stream = bencher.stream()](int) { return ops::segment_attention(p, stream); };
  return c;
}

std::vector<std::pair<int, int>> same(int count, int query, int context) {
  return std::vector<std::pair<int, int>>(static_cast<size_t>(count), {query, context});
}

std::vector<std::pair<int, int>> ragged(int count, int least, int most) {
  std::mt19937_64 random(5);
  std::uniform_real_distribution<double> power(std::log2(least), std::log2(most));
  std::vector<std::pair<int, int>> rows;
  for (int i = 0; i < count; ++i) rows.emplace_back(1, static_cast<int>(std::exp2(power(random))));
  return rows;
}

std::vector<PagedShape> decode_shapes() {
  std::vector<PagedShape> shapes = {
      {"64/8 heads 64 x 4k", 64, 8, 128, same(64, 1, 4096)},
      {"64/8 heads 64 ragged 512 to 16k", 64, 8, 128, ragged(64, 512, 16384)},
      {"64/8 heads 1 x 128k", 64, 8, 128, same(1, 1, 131072)},
      {"64/8 heads 64 x 4k, 4 tokens each", 64, 8, 128, same(64, 4, 4096)},
      {"mla 128 heads 576/512 64 x 4k", 128, 1, 576, same(64, 1, 4096), false, 512},
      {"mla 128 heads 576/512 64 ragged 512 to 16k", 128, 1, 576, ragged(64, 512, 16384), false, 512},
      {"mla 128 heads 576/512 8 x 4k", 128, 1, 576, same(8, 1, 4096), false, 512},
      {"mla 128 heads 576/512 1 x 1k", 128, 1, 576, same(1, 1, 1024), false, 512},
      {"mla 128 heads 576/512 1 x 16k", 128, 1, 576, same(1, 1, 16384), false, 512},
      {"mla 16 heads 576/512 32 x 1k", 16, 1, 576, same(32, 1, 1024), false, 512},
  };
  for (const int batch : {1, 8, 32, 100, 256}) {
    shapes.push_back({fmt::format("qwen3-8b 32/8 heads {} x 1k", batch), 32, 8, 128, same(batch, 1, 1024)});
    shapes.push_back({fmt::format("ernie-0.3b 16/2 heads {} x 1k", batch), 16, 2, 128, same(batch, 1, 1024)});
    shapes.push_back({fmt::format("qwen3-30b-a3b 32/4 heads {} x 1k", batch), 32, 4, 128, same(batch, 1, 1024)});
  }
  return shapes;
}

// The same over caches of codes.
std::vector<PagedShape> over_codes(const std::vector<PagedShape>& shapes) {
  std::vector<PagedShape> out;
  for (const char* what : {"64/8 heads 64 x 4k", "64/8 heads 64 ragged 512 to 16k", "qwen3-8b 32/8 heads 1 x 1k",
                           "qwen3-8b 32/8 heads 100 x 1k", "32/8 heads 1 x 8k", "32/8 heads 2k behind 14k"}) {
    const auto found = std::find_if(shapes.begin(), shapes.end(), [&](const PagedShape& s) { return s.what == what; });
    for (const DType type : {DType::kI8, DType::kF8E4M3}) {
      if (found == shapes.end()) continue;
      out.push_back(*found);
      out.back().cache = type, out.back().what += type == DType::kI8 ? ", int8 cache" : ", e4m3 cache";
    }
  }
  return out;
}

std::vector<PagedShape> prefill_shapes() {
  return {
      {"32/8 heads 4 x 4k", 32, 8, 128, same(4, 4096, 4096)},
      {"32/8 heads 4 x 4k, blocks in order", 32, 8, 128, same(4, 4096, 4096), true},
      {"32/8 heads 1 x 8k", 32, 8, 128, same(1, 8192, 8192)},
      {"32/8 heads 1 x 16k", 32, 8, 128, same(1, 16384, 16384)},
      {"32/8 heads 2k behind 14k", 32, 8, 128, same(1, 2048, 16384)},
      {"32/8 heads 64 behind 16k", 32, 8, 128, same(1, 64, 16448)},
      {"32/8 heads 64 behind 960", 32, 8, 128, same(1, 64, 1024)},
      {"16/2 heads 64 behind 960", 16, 2, 128, same(1, 64, 1024)},
      {"32/8 heads of 64, 4 x 4k", 32, 8, 64, same(4, 4096, 4096)},
      {"32/8 heads of 64, 1 x 16k", 32, 8, 64, same(1, 16384, 16384)},
      {"16/2 heads 1 x 1k", 16, 2, 128, same(1, 1024, 1024)},
      {"16/2 heads 8 x 1k", 16, 2, 128, same(8, 1024, 1024)},
      {"32/8 heads 8 x 1k", 32, 8, 128, same(8, 1024, 1024)},
      {"mla 16 heads 576/512 1 x 2k", 16, 1, 576, same(1, 2048, 2048), false, 512},
      {"mla 128 heads 576/512 1 x 2k", 128, 1, 576, same(1, 2048, 2048), false, 512},
  };
}

}  // namespace

std::vector<KernelBench> bench_attention() {
  std::vector<KernelBench> items;
  for (const PagedShape& s : decode_shapes()) {
    items.push_back({"decode attention", s.what, [s](KernelBencher& bencher) { return make_paged(bencher, s); }});
  }
  for (const PagedShape& s : over_codes(decode_shapes()))
    items.push_back({"decode attention", s.what, [s](KernelBencher& bencher) { return make_paged(bencher, s); }});
  for (PagedShape s : decode_shapes()) {
    s.pass = s.latent_rank == 0 && s.what.ends_with("x 1k");
    if (!s.pass) continue;
    items.push_back({"decode attention", s.what + " and the pass before it",
                     [s](KernelBencher& bencher) { return make_paged(bencher, s); }});
  }
  for (const PagedShape& s : prefill_shapes()) {
    items.push_back({"prefill attention", s.what, [s](KernelBencher& bencher) { return make_paged(bencher, s); }});
  }
  for (const PagedShape& s : over_codes(prefill_shapes()))
    items.push_back({"prefill attention", s.what, [s](KernelBencher& bencher) { return make_paged(bencher, s); }});
  items.push_back({"segment attention", "paddleocr-vl 16 heads of 72, 1 x 5184",
                   [](KernelBencher& bencher) { return make_segments(bencher, 16, 72, {5184}); }});
  items.push_back({"segment attention", "paddleocr-vl 16 heads of 72, 8 x 1024", [](KernelBencher& bencher) {
                     return make_segments(bencher, 16, 72, std::vector<int32_t>(8, 1024));
                   }});
  items.push_back({"segment attention", "qwen2.5-vl 16 heads of 80, 64 x 64", [](KernelBencher& bencher) {
                     return make_segments(bencher, 16, 80, std::vector<int32_t>(64, 64));
                   }});
  return items;
}

}  // namespace tern::bench
