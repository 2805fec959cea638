#include "sample/draw_facts.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace tern::sample {

Expected<DrawFacts> DrawFacts::create(const SamplerLimits& l, device::Device& device, const DrawFacts* shares) {
  DrawFacts f;
  const int64_t rows = l.entropy || l.kept ? l.max_rows : 0;
  f.words_ = l.kept ? (l.vocab + 31) / 32 : 0;
  TERN_ASSIGN_OR_RETURN(f.rows_, Staged<ops::DrawFactsRow>::create(rows, device, shares ? &shares->rows_ : nullptr));
  TERN_ASSIGN_OR_RETURN(f.entropy_,
                        Staged<float>::create(l.entropy ? rows : 0, device, shares ? &shares->entropy_ : nullptr));
  TERN_ASSIGN_OR_RETURN(f.kept_, Staged<uint32_t>::create(rows * f.words_, device, shares ? &shares->kept_ : nullptr));
  return f;
}

int DrawFacts::add(int32_t logit_row, const SamplingParams& p) {
  TERN_CHECK(count_ < rows_.size());
  ops::DrawFactsRow row;
  row.logit_row = logit_row;
  row.top_k = p.top_k, row.top_p = p.top_p, row.min_p = p.min_p;
  row.greedy = p.greedy() ? 1 : 0;
  row.scale = p.greedy() ? 1.0f : 1.0f / p.temperature;
  row.out = out_++;
  rows_[count_++] = row;
  return row.out;
}

void DrawFacts::take(const DrawFacts& whole, std::span<const int32_t> owner, int rank) {
  clear();
  out_ = whole.out_;
  for (int i = 0; i < whole.count_; ++i) {
    const ops::DrawFactsRow& row = whole.rows_[i];
    if (owner[static_cast<size_t>(row.logit_row)] == rank) rows_[count_++] = row;
  }
}

void DrawFacts::give(DrawFacts& whole) const {
  for (int i = 0; i < count_; ++i) {
    const int64_t out = rows_[i].out;
    if (entropy_.size() > 0) whole.entropy_[out] = entropy_[out];
    std::copy_n(kept_.host() + out * words_, words_, whole.kept_.host() + out * words_);
  }
}

void DrawFacts::download(CopyList& list) const {
  entropy_.download(std::min<int64_t>(out_, entropy_.size()), list);
  kept_.download(out_ * words_, list);
}

Status DrawFacts::run(TensorView logits, void* workspace, device::Stream stream) const {
  if (count_ == 0) return {};
  ops::DrawFactsParams p;
  p.logits = logits, p.rows = rows_.device(), p.count = count_, p.workspace = workspace;
  if (entropy_.size() > 0) p.entropy = tensor1(entropy_.device(), DType::kF32, entropy_.size());
  if (words_ > 0) p.kept = tensor2(kept_.device(), DType::kI32, rows_.size(), words_);
  return ops::draw_facts(p, stream);
}

float DrawFacts::entropy(int number) const {
  return entropy_.size() > 0 ? entropy_[number] : std::numeric_limits<float>::quiet_NaN();
}

std::span<const uint32_t> DrawFacts::kept(int number) const {
  return {kept_.host() + number * words_, static_cast<size_t>(words_)};
}

}  // namespace tern::sample
