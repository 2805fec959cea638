// The sampler: identical tokens for identical logits, whatever was asked for.
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "cuda/tests/harness.h"
#include "ops/draw_facts.h"
#include "ops/logits.h"
#include "ops/sample.h"
#include "ops/thinking.h"

namespace tern::cuda_test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

// Arrays of slots on both sides; every member lives in a Mirror.
struct Slots {
  Slots(Context& c, int slots, int64_t vocab)
      : params(c, DType::kU8, {slots, static_cast<int64_t>(sizeof(ops::SlotParams))}),
        seen(c, DType::kI64, {slots, ops::seen_words(vocab)}),
        counts(c, DType::kI32, {slots, vocab}),
        stop(c, DType::kI32, {slots, kList}),
        bias_ids(c, DType::kI32, {slots, kList}),
        bias_values(c, DType::kF32, {slots, kList}),
        bad(c, DType::kI32, {slots, kList}),
        count(slots),
        words(vocab) {}
  ops::SlotParams& at(int slot) { return reinterpret_cast<ops::SlotParams*>(params.host())[slot]; }
  ops::SlotArrays arrays(bool gpu) const {
    const auto p = [&](const Mirror& m) { return gpu ? m.gpu().data : m.cpu().data; };
    ops::SlotArrays a;
    a.slots = count, a.vocab = words;
    a.params = static_cast<ops::SlotParams*>(p(params));
    a.seen = static_cast<uint64_t*>(p(seen)), a.counts = static_cast<int32_t*>(p(counts));
    a.stop_capacity = a.bias_capacity = a.bad_capacity = kList;
    a.stop_ids = static_cast<int32_t*>(p(stop)), a.bias_ids = static_cast<int32_t*>(p(bias_ids));
    a.bias_values = static_cast<float*>(p(bias_values)), a.bad_ids = static_cast<int32_t*>(p(bad));
    return a;
  }
  static constexpr int kList = 8;
  Mirror params, seen, counts, stop, bias_ids, bias_values, bad;
  int count;
  int64_t words;
};

// Rows of plain structs on both sides.
template <class T>
struct Items {
  Items(Context& c, const std::vector<T>& items)
      : memory(c, DType::kU8, {static_cast<int64_t>(items.size() * sizeof(T)) + 1}),
        count(static_cast<int>(items.size())) {
    if (!items.empty()) std::memcpy(memory.host(), items.data(), items.size() * sizeof(T));
    memory.copy_to_device();
  }
  const T* at(bool gpu) const { return static_cast<const T*>(gpu ? memory.gpu().data : memory.cpu().data); }
  Mirror memory;
  int count;
};

ops::SlotParams wish(int i) {
  ops::SlotParams s;
  s.seed = 0x123456789abcdefu + static_cast<uint64_t>(i) * 77;
  constexpr float kTemperature[] = {1.0f, 0.7f, 0.1f, 1.9f, 1e-6f};
  s.temperature = kTemperature[i % 5];
  s.scale = 1.0f / s.temperature;
  constexpr float kTopP[] = {1.0f, 0.95f, 0.5f, 0.999f, 1e-6f, 0.8f, 1.0f};
  s.top_p = kTopP[i % 7];
  constexpr int kTopK[] = {0, 1, 20, 0, 64, 100000, 3};
  s.top_k = kTopK[i / 7 % 7];
  constexpr float kMinP[] = {0.0f, 0.05f, 0.9f, 0.0f};
  s.min_p = kMinP[i / 5 % 4];
  s.greedy = i % 11 == 10;
  s.penalised = i % 3 == 0;
  return s;
}

// Any wish, half of the time one for a nucleus alone.
ops::SlotParams any_wish(std::mt19937& random) {
  ops::SlotParams s = wish(static_cast<int>(random() % 1000000));
  if (random() % 2 == 0) return s;
  std::uniform_real_distribution<float> part(0.0f, 1.0f);
  s.top_k = 0, s.min_p = 0.0f, s.greedy = 0;
  s.temperature = 0.1f + 2.0f * part(random), s.scale = 1.0f / s.temperature;
  s.top_p = std::min(1.0f, 1.1f * part(random));
  return s;
}

constexpr int kKinds = 16;
// What a row of logits looks like: wide, narrow, with ties, with holes, broken.
void shape_row(float* x, int64_t n, int kind, std::mt19937& random) {
  std::normal_distribution<float> normal(0.0f, kind % 2 == 0 ? 4.0f : 0.3f);
  for (int64_t i = 0; i < n; ++i) x[i] = normal(random);
  if (kind == 2)
    for (int64_t i = 0; i < n; ++i) x[i] = std::round(x[i]);
  if (kind == 3)
    for (int64_t i = 0; i < n; ++i) x[i] = i % 3 == 0 ? x[i] : -kInf;
  if (kind == 4)
    for (int64_t i = 0; i < n; ++i) x[i] = 0.0f;
  if (kind == 5) x[n / 2] = std::numeric_limits<float>::quiet_NaN();
  if (kind == 6)
    for (int64_t i = 0; i < n; ++i) x[i] = -kInf;
  if (kind == 7) x[n - 1] = kInf;
  if (kind == 8)
    for (int64_t i = 0; i < n; ++i) x[i] = i % 2 == 0 ? -0.0f : 0.0f;
  if (kind == 13)  // few values, the signs of zeros drawn; nuclei end among them
    for (int64_t i = 0; i < n; ++i) x[i] = std::round(x[i]) * (random() % 2 == 0 ? -1.0f : 1.0f);
  if (kind == 14)  // nearly equal
    for (int64_t i = 0; i < n; ++i) x[i] = 8.0f + std::ldexp(std::round(x[i]), -20);
  if (kind == 15)  // around zero: ordered bits far apart for values that weigh the same
    for (int64_t i = 0; i < n; ++i) x[i] = std::ldexp(x[i], -static_cast<int>(random() % 140));
}

// Tokens that the slots' sequences have, a twentieth of all or every one, and how often.
void mark_seen(Slots& slots, std::mt19937& random) {
  const int64_t words = ops::seen_words(slots.words);
  for (int slot = 0; slot < slots.count; ++slot) {
    ops::SlotParams& s = slots.at(slot);
    s.repetition = slot % 2 == 0 ? 1.3f : 0.8f;
    if (slot % 3 != 0) s.frequency = 0.2f, s.presence = 0.4f;
    const bool every = slot % 5 == 1;
    for (int64_t i = 0; i < (every ? slots.words : slots.words / 20 + 1); ++i) {
      const int64_t id = every ? i : static_cast<int64_t>(random() % static_cast<uint64_t>(slots.words));
      reinterpret_cast<uint64_t*>(slots.seen.host())[slot * words + id / 64] |= uint64_t{1} << (id % 64);
      reinterpret_cast<int32_t*>(slots.counts.host())[slot * slots.words + id] += static_cast<int32_t>(i % 3);
    }
  }
  slots.seen.copy_to_device(), slots.counts.copy_to_device();
}

// Any kind of row with any wish for each row where `seed` is not 0, launched again and again where that changes
// nothing; else those from `first` on in turn. `penalise`: the draw finds penalties that are not done. Rows begin at
// 16-byte boundaries but where 1000 is the vocabulary.
void draws(Context& c, int64_t vocab, int rows, bool probs, int first = 0, bool penalise = false, unsigned seed = 0) {
  if (!c.own_turn()) return;
  const int64_t pad = vocab == 1000 ? 5 : 8 - vocab % 4;
  Mirror logits(c, DType::kF32, {rows, vocab}, pad), ids(c, DType::kI32, {rows}), status(c, DType::kI32, {rows}),
      prob(c, DType::kF32, {rows});
  Slots slots(c, rows, vocab);
  std::mt19937 random(17 + seed);
  std::vector<ops::SampleRow> items;
  for (int i = 0; i < rows; ++i) {
    const int kind = seed != 0 ? static_cast<int>(random() % kKinds) : (first + i) % kKinds;
    shape_row(reinterpret_cast<float*>(logits.cpu().row_bytes(i)), vocab, kind, random);
    slots.at(i) = seed != 0 ? any_wish(random) : wish(first + i);
    if (seed != 0) slots.at(i).penalised = penalise;
    ops::SampleRow r;
    r.logit_row = i, r.slot = rows - 1 - i, r.position = 1000 + 3 * i, r.draw = i % 2;
    items.push_back(r);
  }
  if (penalise) mark_seen(slots, random);
  logits.copy_to_device(), slots.params.copy_to_device();
  const Items<ops::SampleRow> list(c, items);
  std::vector<char> cpu_space(ops::sample_workspace(c.cpu, vocab));
  auto gpu_space = c.device->allocate(ops::sample_workspace(c.gpu, vocab));
  if (!gpu_space.ok()) return c.report(false, "sample", gpu_space.error().message);
  const auto params = [&](bool gpu) {
    const auto v = [&](const Mirror& m) { return gpu ? m.gpu() : m.cpu(); };
    return ops::SampleParams{{v(logits), list.at(gpu), list.count, slots.arrays(gpu)},
                             v(ids),
                             v(status),
                             probs ? v(prob) : TensorView{},
                             gpu ? static_cast<void*>(gpu_space->data()) : cpu_space.data(),
                             penalise};
  };
  const std::string name = title(penalise ? "sample with penalties" : "sample", DType::kF32, {rows, vocab});
  if (!c.both(name, ops::sample(params(false), c.cpu), ops::sample(params(true), c.gpu))) return;
  for (int again = seed != 0 && !penalise && !c.smallest ? 4 : 0; again > 0; --again) {
    compare(c, name + " tokens", ids, ids.host(), 0);
    if (!c.both(name, {}, ops::sample(params(true), c.gpu))) return;
  }
  const bool clusters = c.hopper() || c.device->info().name.find("emulated") != std::string::npos;
  c.expect_kernel(name, clusters && rows <= 66 && vocab >= 4096 ? "sample_cluster" : "sample");
  compare(c, name + " tokens", ids, ids.host(), 0);
  if (penalise) compare(c, name + " logits", logits, logits.host(), 1e-12);  // not 0: kinds of NaN differ
  compare(c, name + " status", status, status.host(), 0);
  if (probs) compare(c, name + " probabilities", prob, prob.host(), 0);
  compare(c, name + " counts", slots.counts, slots.counts.host(), 0);
  compare(c, name + " seen", slots.seen, slots.seen.host(), 0);
}

}  // namespace

void test_sample(Context& c) {
  draws(c, 100, 50, false);
  draws(c, c.smallest ? 9001 : 33333, c.smallest ? 13 : 300, true);
  if (!c.smallest) draws(c, 1000, 900, true), draws(c, 152064, 140, false);
  draws(c, 2, 40, true);
  draws(c, 1000, 26, false, 1, true);
  if (!c.smallest) draws(c, 103424, 140, false, 2, true), draws(c, 103424, 30, false, 3, true);
  // Few rows, where a row has several blocks on Hopper.
  draws(c, 10007, 16, true, 4, true);
  if (!c.smallest) draws(c, 10007, 64, false, 5, true);
  for (const int first : c.pick<int>({0, 16, 32, 48, 64, 80, 96, 112, 128}, 1)) draws(c, 10007, 16, false, first);
  if (!c.smallest) draws(c, 10007, 30, false), draws(c, 10007, 60, true, 3), draws(c, 103424, 40, false, 5);
  if (!c.smallest) draws(c, 152064, 13, false), draws(c, 103424, 5, true, 7);
  // Any rows, of several widths and with as many rows that a block has one, or a cluster does.
  unsigned seed = 1;
  for (int round = 0; round < (c.smallest ? 1 : c.rounds); ++round) {
    for (const int64_t vocab : c.pick<int64_t>({5003, 12345, 40000, 103424}, 1)) {
      for (const int rows : c.pick<int>({70, 8, 30, 14, 60, 140}, 3)) {
        draws(c, vocab, rows, seed % 3 == 0, 0, seed % 2 == 0, seed), ++seed;
      }
    }
  }
}

void test_logits(Context& c) {
  constexpr int64_t kVocab = 1500;
  constexpr int kRows = 12;
  Mirror logits(c, DType::kF32, {kRows, kVocab}), masks(c, DType::kI32, {3, (kVocab + 31) / 32}),
      tokens(c, DType::kI32, {300});
  Slots slots(c, kRows, kVocab);
  logits.random(1, 3.0f);
  std::mt19937 random(2);
  for (size_t i = 0; i < masks.bytes() / 4; ++i) reinterpret_cast<uint32_t*>(masks.host())[i] = random();
  std::vector<int32_t> words, lists;
  for (int i = 0; i < 300; ++i) words.push_back(static_cast<int32_t>(random() % 200));
  for (int i = 0; i < kRows * Slots::kList; ++i) lists.push_back(static_cast<int32_t>(random() % kVocab));
  lists[1] = lists[0], lists[5] = lists[0];  // an id that is listed more than once
  masks.copy_to_device(), tokens.fill(words), slots.stop.fill(lists), slots.bias_ids.fill(lists), slots.bad.fill(lists);
  slots.bias_values.random(3);
  std::vector<ops::SampleRow> items;
  for (int i = 0; i < kRows; ++i) {
    ops::SlotParams& s = slots.at(i);
    s = wish(i);
    s.repetition = 1.3f, s.frequency = 0.2f, s.presence = 0.4f, s.penalised = i % 2;
    s.min_tokens = i % 3 * 5, s.stop_count = i % 4, s.bias_count = i % Slots::kList, s.bad_count = i % 3;
    if (i == 0) s.bias_count = Slots::kList;
    ops::SampleRow r;
    r.logit_row = kRows - 1 - i, r.slot = i, r.generated = i, r.mask_row = i % 4 - 1;
    items.push_back(r);
  }
  slots.params.copy_to_device();
  const Items<ops::SampleRow> list(c, items);
  const auto rows = [&](bool gpu) {
    return ops::LogitsParams{gpu ? logits.gpu() : logits.cpu(), list.at(gpu), list.count, slots.arrays(gpu)};
  };
  for (int slot = 0; slot < kRows; ++slot) {
    const auto mark = [&](bool gpu) {
      return ops::SlotMarkParams{slots.arrays(gpu), slot,
                                 static_cast<const int32_t*>(gpu ? tokens.gpu().data : tokens.cpu().data), 20 * slot,
                                 slot % 2 == 1};
    };
    (void)c.both("slot_mark", ops::slot_mark(mark(false), c.cpu), ops::slot_mark(mark(true), c.gpu));
  }
  compare(c, "slot_mark", slots.counts, slots.counts.host(), 0);
  if (c.both("logit_mask", ops::logit_mask({rows(false), masks.cpu()}, c.cpu),
             ops::logit_mask({rows(true), masks.gpu()}, c.gpu))) {
    compare(c, "logit_mask", logits, logits.host(), 0);
  }
  using Op = Status (*)(const ops::LogitsParams&, device::Stream);
  for (const auto& [name, op] : {std::pair<const char*, Op>{"logit_bias", ops::logit_bias},
                                 {"logit_min_tokens", ops::logit_min_tokens},
                                 {"logit_penalties", ops::logit_penalties},
                                 {"logit_bad_words", ops::logit_bad_words}}) {
    if (c.both(name, op(rows(false), c.cpu), op(rows(true), c.gpu))) compare(c, name, logits, logits.host(), 0);
  }
  (void)c.both("slot_reset", ops::slot_reset(slots.arrays(false), 5, c.cpu),
               ops::slot_reset(slots.arrays(true), 5, c.gpu));
  compare(c, "slot_reset seen", slots.seen, slots.seen.host(), 0);
  compare(c, "slot_reset counts", slots.counts, slots.counts.host(), 0);
}

// Many steps of rows with every kind of limit; ids come from a small vocabulary, so that marks begin and break off.
void test_thinking(Context& c) {
  constexpr int64_t kVocab = 1500;
  constexpr int kRows = 40, kIds = 16;
  Mirror logits(c, DType::kF32, {kRows, kVocab}), lists(c, DType::kI32, {kRows, kIds}),
      states(c, DType::kI32, {kRows, 2}), ids(c, DType::kI32, {kRows});
  Slots slots(c, kRows, kVocab);
  std::mt19937 random(4);
  std::vector<int32_t> words(kRows * kIds);
  for (int32_t& w : words) w = static_cast<int32_t>(random() % 3);
  lists.fill(words), states.fill(std::vector<int32_t>(2 * kRows));
  for (int i = 0; i < kRows; ++i) {
    ops::SlotParams& s = slots.at(i);
    s.thinking_limit = i % 7, s.thinking_mark = 1 + i % 4, s.thinking_forced = 1 + i % 9;
  }
  slots.params.copy_to_device();
  for (int step = 0; step < 24; ++step) {
    std::vector<ops::SampleRow> items(kRows);
    for (int i = 0; i < kRows; ++i) {
      ops::SampleRow& r = items[static_cast<size_t>(i)];
      r.logit_row = i % 11 == 10 ? -1 : i, r.slot = i, r.generated = step, r.thinking = i % 5 != 4;
    }
    const Items<ops::SampleRow> list(c, items);
    logits.random(static_cast<unsigned>(step), 3.0f);
    std::vector<int32_t> sampled(kRows);
    for (int32_t& id : sampled) id = static_cast<int32_t>(random() % 3);
    ids.fill(sampled);
    const auto rows = [&](bool gpu) {
      ops::SlotArrays a = slots.arrays(gpu);
      a.thinking_capacity = kIds;
      a.thinking_ids = static_cast<int32_t*>(gpu ? lists.gpu().data : lists.cpu().data);
      a.thinking_states = static_cast<ops::ThinkingState*>(gpu ? states.gpu().data : states.cpu().data);
      return ops::LogitsParams{gpu ? logits.gpu() : logits.cpu(), list.at(gpu), list.count, a};
    };
    if (c.both("thinking_force", ops::thinking_force(rows(false), c.cpu), ops::thinking_force(rows(true), c.gpu))) {
      compare(c, "thinking_force", logits, logits.host(), 0);
    }
    if (c.both("thinking_advance", ops::thinking_advance({rows(false), ids.cpu()}, c.cpu),
               ops::thinking_advance({rows(true), ids.gpu()}, c.gpu))) {
      compare(c, "thinking_advance", states, states.host(), 0);
    }
  }
}

void test_logprobs(Context& c) {
  for (const int64_t vocab : {200, c.smallest ? 9000 : 40000}) {
    constexpr int kRows = 26;
    Mirror logits(c, DType::kF32, {kRows, vocab}), ids(c, DType::kI32, {kRows}), kept(c, DType::kF32, {3, vocab}),
        which(c, DType::kI32, {3});
    std::mt19937 random(5);
    std::vector<ops::LogprobRow> items;
    std::vector<int32_t> sampled;
    int out = 0;
    for (int i = 0; i < kRows; ++i) {
      shape_row(reinterpret_cast<float*>(logits.cpu().row_bytes(i)), vocab, i % 13, random);
      sampled.push_back(static_cast<int32_t>(random() % static_cast<uint32_t>(vocab)));
      ops::LogprobRow r;
      r.logit_row = i, r.target = i % 2 == 0 ? -1 : i, r.sampled_row = kRows - 1 - i;
      r.top = i % 5 == 4 ? 200 : i % 5 * 5, r.logits = i % 7 == 6, r.scale = i % 3 == 0 ? 1.0f : 0.7f;
      r.top_p = i % 4 == 3 ? 0.8f : 1.0f, r.out = out;
      out += 1 + r.top;
      items.push_back(r);
    }
    logits.copy_to_device(), ids.fill(sampled), which.fill<int32_t>({5, 0, 25});
    const Items<ops::LogprobRow> list(c, items);
    Mirror scores(c, DType::kI32, {out, 3});
    std::vector<char> cpu_space(ops::sample_workspace(c.cpu, vocab));
    auto gpu_space = c.device->allocate(ops::sample_workspace(c.gpu, vocab));
    if (!gpu_space.ok()) return c.report(false, "token_logprobs", gpu_space.error().message);
    const auto params = [&](bool gpu) {
      const auto v = [&](const Mirror& m) { return gpu ? m.gpu() : m.cpu(); };
      return ops::LogprobParams{v(logits),
                                list.at(gpu),
                                list.count,
                                v(ids),
                                static_cast<ops::TokenScore*>(v(scores).data),
                                gpu ? static_cast<void*>(gpu_space->data()) : cpu_space.data()};
    };
    const std::string name = title("token_logprobs", DType::kF32, {kRows, vocab});
    if (c.both(name, ops::token_logprobs(params(false), c.cpu), ops::token_logprobs(params(true), c.gpu))) {
      const std::vector<char> data = scores.copy_to_host();
      const auto *got = reinterpret_cast<const ops::TokenScore*>(data.data()),
                 *want = reinterpret_cast<const ops::TokenScore*>(scores.host());
      for (int i = 0; i < out; ++i) {
        const float a = got[i].value, b = want[i].value;
        const bool close =
            (std::isnan(a) && std::isnan(b)) || a == b || std::abs(a - b) <= 1e-5f * (1.0f + std::abs(b));
        if (got[i].id == want[i].id && got[i].rank == want[i].rank && close) continue;
        c.report(false, name,
                 "entry " + std::to_string(i) + ": id " + std::to_string(got[i].id) + " for " +
                     std::to_string(want[i].id) + ", value " + std::to_string(a) + " for " + std::to_string(b) +
                     ", rank " + std::to_string(got[i].rank) + " for " + std::to_string(want[i].rank));
        break;
      }
      c.report(true, name, std::to_string(out) + " entries");
    }
    if (c.both("capture_logits",
               ops::capture_logits({logits.cpu(), which.cpu().as<const int32_t>(), 3, kept.cpu()}, c.cpu),
               ops::capture_logits({logits.gpu(), which.gpu().as<const int32_t>(), 3, kept.gpu()}, c.gpu))) {
      compare(c, "capture_logits", kept, kept.host(), 0);
    }
  }
}

void test_draw_facts(Context& c) {
  for (const int64_t vocab : {200, c.smallest ? 9000 : 103424}) {
    constexpr int kRows = 80;
    Mirror logits(c, DType::kF32, {kRows, vocab}, 3), entropy(c, DType::kF32, {kRows}),
        kept(c, DType::kI32, {kRows, (vocab + 31) / 32});
    std::mt19937 random(6);
    std::vector<ops::DrawFactsRow> items;
    for (int i = 0; i < kRows; ++i) {
      shape_row(reinterpret_cast<float*>(logits.cpu().row_bytes(i)), vocab, i % kKinds, random);
      const ops::SlotParams s = any_wish(random);
      items.push_back({i, s.top_k, s.greedy, s.scale, s.top_p, s.min_p, kRows - 1 - i});
    }
    logits.copy_to_device();
    const Items<ops::DrawFactsRow> list(c, items);
    std::vector<char> space(ops::sample_workspace(c.cpu, vocab));
    const auto params = [&](bool gpu) {
      const auto v = [&](const Mirror& m) { return gpu ? m.gpu() : m.cpu(); };
      return ops::DrawFactsParams{v(logits), list.at(gpu), list.count, v(entropy), v(kept), space.data()};
    };
    const std::string name = title("draw_facts", DType::kF32, {kRows, vocab});
    if (!c.both(name, ops::draw_facts(params(false), c.cpu), ops::draw_facts(params(true), c.gpu))) continue;
    compare(c, name + " kept", kept, kept.host(), 0);
    compare(c, name + " entropy", entropy, entropy.host(), 1e-5);
  }
}

}  // namespace tern::cuda_test
