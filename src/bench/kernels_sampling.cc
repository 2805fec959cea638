// From float32 logits to tokens: penalties and the draw, over logits that are peaked, spread or nearly flat.
#include <fmt/format.h>

#include "bench/kernels.h"
#include "ops/sample.h"

namespace tern::bench {
namespace {

constexpr int kPrompt = 1024;  // seen ids of every sequence

Expected<ops::SlotArrays> make_slots(KernelBencher& bencher, int rows, int64_t vocab, const ops::SlotParams& wish) {
  ops::SlotArrays s;
  s.slots = rows, s.vocab = vocab;
  TERN_ASSIGN_OR_RETURN(s.params, bencher.values(std::vector<ops::SlotParams>(static_cast<size_t>(rows), wish)));
  const auto words = static_cast<size_t>(ops::seen_words(vocab));
  std::vector<uint64_t> seen(static_cast<size_t>(rows) * words);
  for (size_t r = 0; r < static_cast<size_t>(rows); ++r) {
    for (size_t i = 0; i < kPrompt; ++i) {
      const size_t id = (r * 131 + i * 7919) % static_cast<size_t>(vocab);
      seen[r * words + id / 64] |= uint64_t{1} << (id % 64);
    }
  }
  TERN_ASSIGN_OR_RETURN(s.seen, bencher.values(seen));
  TERN_ASSIGN_OR_RETURN(const TensorView counts, bencher.zeros(DType::kI32, rows, vocab));
  s.counts = counts.as<int32_t>();
  return s;
}

enum class Part : uint8_t { kPenalties, kSample, kBoth };

// Penalties change the logits of seen ids at every replay, a hundredth of all: what is drawn from stays as it is.
Expected<KernelCase> make(KernelBencher& bencher, int rows, int64_t vocab, float sigma, Part part, bool greedy) {
  ops::SlotParams wish;
  wish.seed = 42, wish.temperature = 0.8f, wish.scale = 1.25f, wish.top_p = 0.8f;
  wish.repetition = 1.05f, wish.penalised = 1;
  if (greedy) wish = {.greedy = 1};
  ops::SampleParams p;
  TERN_ASSIGN_OR_RETURN(p.rows.logits, bencher.random(DType::kF32, rows, vocab, sigma));
  TERN_ASSIGN_OR_RETURN(p.rows.slots, make_slots(bencher, rows, vocab, wish));
  std::vector<ops::SampleRow> list(static_cast<size_t>(rows));
  for (int i = 0; i < rows; ++i) {
    ops::SampleRow& r = list[static_cast<size_t>(i)];
    r.logit_row = r.slot = i, r.position = kPrompt + i;
  }
  TERN_ASSIGN_OR_RETURN(p.rows.rows, bencher.values(list));
  p.rows.count = rows;
  TERN_ASSIGN_OR_RETURN(p.ids, bencher.ints(std::vector<int32_t>(static_cast<size_t>(rows))));
  TERN_ASSIGN_OR_RETURN(p.status, bencher.ints(std::vector<int32_t>(static_cast<size_t>(rows))));
  TERN_ASSIGN_OR_RETURN(p.workspace, bencher.take(ops::sample_workspace(bencher.stream(), vocab)));
  KernelCase c;
  const double logits = static_cast<double>(rows) * static_cast<double>(vocab) * 4;
  c.bytes = part == Part::kPenalties ? logits / 32 + rows * kPrompt * 8.0 : logits;
  p.penalise = part == Part::kBoth;
  c.run = [p, part, stream = bencher.stream()](int) {
    return part == Part::kPenalties ? ops::logit_penalties(p.rows, stream) : ops::sample(p, stream);
  };
  return c;
}

}  // namespace

std::vector<KernelBench> bench_sampling() {
  std::vector<KernelBench> items;
  const auto add = [&](const char* what, int rows, int64_t vocab, float sigma, Part part, bool greedy = false) {
    items.push_back({"sampler", fmt::format("{}, {} x {}, sigma {}", what, rows, vocab, sigma),
                     [=](KernelBencher& bencher) { return make(bencher, rows, vocab, sigma, part, greedy); }});
  };
  for (const int rows : {1, 32, 100, 256}) {
    add("penalties and top-p 0.8", rows, 103424, 2.0f, Part::kBoth);
    add("top-p 0.8", rows, 103424, 2.0f, Part::kSample);
    add("repetition penalty", rows, 103424, 2.0f, Part::kPenalties);
    add("greedy", rows, 103424, 2.0f, Part::kSample, true);
    add("penalties and top-p 0.8", rows, 151936, 2.0f, Part::kBoth);
  }
  add("penalties and top-p 0.8", 100, 103424, 0.3f, Part::kBoth);
  add("penalties and top-p 0.8", 100, 103424, 5.0f, Part::kBoth);
  return items;
}

}  // namespace tern::bench
