// Rotation, and what lies between the QKV projection and attention.
#include "ops/rope.h"
#include "cuda/tests/harness.h"
#include "cuda/tests/paged.h"

namespace tern::cuda_test {
namespace {

struct Tables {
  Mirror cos, sin;
};

Tables make_tables(Context& c, int64_t tokens, int64_t half) {
  Mirror positions(c, DType::kI32, {3, tokens}), freq(c, DType::kF32, {half}), axis(c, DType::kU8, {half});
  std::vector<int32_t> p;
  for (int64_t i = 0; i < 3 * tokens; ++i) p.push_back(static_cast<int32_t>(i * 37 % 131072));
  std::vector<float> f;
  std::vector<uint8_t> a;
  for (int64_t i = 0; i < half; ++i) {
    f.push_back(1.0f / (1.0f + 3.0f * static_cast<float>(i)));
    a.push_back(static_cast<uint8_t>(i % 3));
  }
  positions.fill(p), freq.fill(f), axis.fill(a);
  Tables t{Mirror(c, DType::kF32, {tokens, half}), Mirror(c, DType::kF32, {tokens, half})};
  const std::string name = title("rope_table", DType::kF32, {tokens, half});
  if (c.both(name, ops::rope_table({positions.cpu(), freq.cpu(), axis.cpu(), 1.25f, t.cos.cpu(), t.sin.cpu()}, c.cpu),
             ops::rope_table({positions.gpu(), freq.gpu(), axis.gpu(), 1.25f, t.cos.gpu(), t.sin.gpu()}, c.gpu))) {
    compare(c, name + " cos", t.cos, t.cos.host(), 2e-7);
    compare(c, name + " sin", t.sin, t.sin.host(), 2e-7);
  }
  return t;
}

void rotate(Context& c, DType type, DType out_type, ops::RopeStyle style, int64_t tokens) {
  Tables t = make_tables(c, tokens, 32);
  Mirror x(c, type, {tokens, 5, 72}), out(c, out_type, {tokens, 5, 72});
  x.random(1);
  const std::string name = title("rope", type, {tokens, 5, 72});
  const ops::RopeParams cpu{x.cpu(), t.cos.cpu(), t.sin.cpu(), style, out.cpu()},
      gpu{x.gpu(), t.cos.gpu(), t.sin.gpu(), style, out.gpu()};
  if (!c.both(name, ops::rope(cpu, c.cpu), ops::rope(gpu, c.gpu))) return;
  compare(c, name, out, out.host(), tolerance_of(out_type));
}

// In place, and with q in a place of its own.
void prepare(Context& c, DType type, DType cache_type, ops::RopeStyle style, bool norms, int heads, int kv_heads,
             int dim, bool apart) {
  const int64_t tokens = 75, all = heads + 2 * kv_heads;
  Tables t = make_tables(c, tokens, dim / 2 - (dim == 72 ? 4 : 0));
  Mirror x(c, type, {tokens, all * dim}), q_norm(c, DType::kBF16, {dim}), k_norm(c, DType::kBF16, {dim}),
      slots(c, DType::kI64, {tokens}), q(c, cache_type, {tokens, heads * dim}, 8);
  x.random(2), q_norm.random(3), k_norm.random(4);
  std::vector<int64_t> at;
  for (int64_t i = 0; i < tokens; ++i) at.push_back(i == 5 ? 3 : 64 * 2 + 40 + i);  // token 5 is padding
  slots.fill(at);
  PagedCache cache(c, cache_type, kv_heads, dim, 64, 5);
  const std::string name = title("qkv_prepare", type, {tokens, all, dim});
  const auto params = [&](bool gpu) {
    const auto v = [&](const Mirror& m) { return gpu ? m.gpu() : m.cpu(); };
    ops::QkvPrepareParams p;
    p.qkv = v(x), p.heads = heads, p.kv_heads = kv_heads, p.head_dim = dim;
    if (norms) p.q_norm = v(q_norm), p.k_norm = v(k_norm);
    p.cos = v(t.cos), p.sin = v(t.sin), p.style = style;
    p.cache = gpu ? cache.gpu() : cache.cpu();
    p.slot_mapping = v(slots);
    if (apart) p.q = v(q);
    return p;
  };
  if (!c.both(name, ops::qkv_prepare(params(false), c.cpu), ops::qkv_prepare(params(true), c.gpu))) return;
  const bool fast = dim == 64 || dim == 128;
  const char* registers = type == DType::kBF16 ? "qkv_prepare_wide" : "qkv_prepare_fast";
  c.expect_kernel(name, !apart ? "qkv_prepare" : fast ? registers : "qkv_prepare_heads");
  if (apart) {
    compare(c, name + " q", q, q.host(), tolerance_of(cache_type));
  } else if (type == cache_type) {
    compare(c, name + " q", x, x.host(), tolerance_of(type));
  }
  cache.compare_blocks(name + " cache", tolerance_of(cache_type));
}

// Into a cache of codes: without norms and rotation the CPU's bytes.
void prepare_codes(Context& c, DType type, DType cache_type, bool plain, int dim, bool known, bool channels) {
  const int heads = 3, kv_heads = 2, all = heads + 2 * kv_heads;
  const int64_t tokens = 75;
  Tables t = make_tables(c, tokens, dim / 2);
  Mirror x(c, type, {tokens, all * dim}), norm(c, DType::kBF16, {dim}), slots(c, DType::kI64, {tokens}),
      q(c, DType::kBF16, {tokens, heads * dim}), scales(c, DType::kF32, {kv_heads * dim});
  x.random(2), norm.random(4);
  std::vector<int64_t> at;
  for (int64_t i = 0; i < tokens; ++i) at.push_back(i == 5 ? 3 : 64 * 2 + 40 + i);  // token 5 is padding
  slots.fill(at);
  std::vector<float> values;
  for (int i = 0; i < kv_heads * dim; ++i) values.push_back(0.01f + 0.0001f * static_cast<float>(i));
  scales.fill(values);
  PagedCache cache(c, cache_type, kv_heads, dim, 64, 5);
  const std::string name = title("qkv_prepare into " + std::string(dtype_name(cache_type)), type, {tokens, all, dim});
  const auto params = [&](bool gpu) {
    const auto v = [&](const Mirror& m) { return gpu ? m.gpu() : m.cpu(); };
    ops::QkvPrepareParams p;
    p.qkv = v(x), p.heads = heads, p.kv_heads = kv_heads, p.head_dim = dim;
    if (!plain) p.q_norm = p.k_norm = v(norm), p.cos = v(t.cos), p.sin = v(t.sin);
    p.cache = gpu ? cache.gpu() : cache.cpu();
    const auto* of = v(scales).as<const float>();
    if (known) p.cache.scales = {of, of, channels};
    p.slot_mapping = v(slots), p.q = v(q);
    return p;
  };
  if (!c.both(name, ops::qkv_prepare(params(false), c.cpu), ops::qkv_prepare(params(true), c.gpu))) return;
  c.expect_kernel(name, "qkv_prepare_codes");
  compare(c, name + " q", q, q.host(), tolerance_of(DType::kBF16));
  cache.compare_codes(name + " cache", plain ? 0 : type == DType::kBF16 ? 4 : 1);
}

void mla_write(Context& c, DType type) {
  Mirror latent(c, type, {70, 512}), tail(c, type, {70, 64}), slots(c, DType::kI64, {70});
  latent.random(1), tail.random(2);
  std::vector<int64_t> at;
  for (int64_t i = 0; i < 70; ++i) at.push_back(i == 9 ? 0 : 64 + 30 + i);
  slots.fill(at);
  PagedCache cache(c, type, 1, 576, 64, 3, true);
  const std::string name = title("mla_cache_write", type, {70, 576});
  if (c.both(name, ops::mla_cache_write({latent.cpu(), tail.cpu(), cache.cpu(), slots.cpu()}, c.cpu),
             ops::mla_cache_write({latent.gpu(), tail.gpu(), cache.gpu(), slots.gpu()}, c.gpu))) {
    cache.compare_blocks(name, 0);
  }
}

}  // namespace

void test_rope(Context& c) {
  for (const auto style : {ops::RopeStyle::kHalfSplit, ops::RopeStyle::kInterleaved}) {
    rotate(c, DType::kBF16, DType::kBF16, style, 3);
    rotate(c, DType::kF32, DType::kF32, style, 1);
    rotate(c, DType::kF32, DType::kBF16, style, c.smallest ? 9 : 700);
    for (const bool apart : {false, true}) {
      for (const bool norms : {false, true}) {
        prepare(c, DType::kBF16, DType::kBF16, style, norms, 4, 2, 64, apart);
        prepare(c, DType::kF32, DType::kBF16, style, norms, 3, 1, 72, apart);
        prepare(c, DType::kF32, DType::kBF16, style, norms, 5, 2, 128, apart);
        prepare(c, DType::kF32, DType::kF32, style, norms, 2, 1, 128, apart);
      }
      prepare(c, DType::kBF16, DType::kBF16, style, true, 64, 8, 128, apart);
    }
  }
  for (const DType cache : {DType::kI8, DType::kF8E4M3}) {
    for (const DType type : {DType::kBF16, DType::kF32}) {
      prepare_codes(c, type, cache, true, 128, false, false);
      prepare_codes(c, type, cache, true, 80, true, false);
      prepare_codes(c, type, cache, true, 64, true, true);
      prepare_codes(c, type, cache, false, 128, false, false);
    }
  }
  mla_write(c, DType::kBF16);
  mla_write(c, DType::kF32);
}

}  // namespace tern::cuda_test
