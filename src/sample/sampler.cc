#include "sample/sampler.h"

#include <algorithm>

#include "base/check.h"

namespace tern::sample {
namespace {

bool is_raw(LogprobsMode m) { return m == LogprobsMode::kRawLogprobs || m == LogprobsMode::kRawLogits; }
bool is_logits(LogprobsMode m) { return m == LogprobsMode::kRawLogits || m == LogprobsMode::kProcessedLogits; }
int64_t mask_words(int64_t vocab) { return (vocab + 31) / 32; }

}  // namespace

Expected<SamplingBatch> SamplingBatch::create(const SamplerLimits& l, device::Device& device) {
  SamplingBatch b;
  b.limits_ = l;
  const int64_t scores = static_cast<int64_t>(l.max_logit_rows) * (1 + std::min<int64_t>(l.max_logprobs, l.vocab));
  TERN_ASSIGN_OR_RETURN(b.rows_, Staged<ops::SampleRow>::create(l.max_rows, device));
  TERN_ASSIGN_OR_RETURN(b.masks_, Staged<uint32_t>::create(l.masks ? l.max_rows * mask_words(l.vocab) : 0, device));
  TERN_ASSIGN_OR_RETURN(b.capture_rows_, Staged<int32_t>::create(l.max_rows, device));
  TERN_ASSIGN_OR_RETURN(b.plain_rows_, Staged<ops::LogprobRow>::create(l.max_logit_rows, device));
  TERN_ASSIGN_OR_RETURN(b.captured_rows_, Staged<ops::LogprobRow>::create(l.max_rows, device));
  TERN_ASSIGN_OR_RETURN(b.ids_, Staged<int32_t>::create(l.max_logit_rows, device));
  TERN_ASSIGN_OR_RETURN(b.status_, Staged<int32_t>::create(l.max_logit_rows, device));
  TERN_ASSIGN_OR_RETURN(b.probs_, Staged<float>::create(l.max_logit_rows, device));
  TERN_ASSIGN_OR_RETURN(b.scores_, Staged<ops::TokenScore>::create(scores, device));
  b.requests_.reserve(static_cast<size_t>(l.max_logit_rows));
  return b;
}

void SamplingBatch::clear() {
  updates.clear();
  requests_.clear();
  count_ = logit_rows_ = captures_ = plain_ = captured_ = 0;
  score_count_ = 0;
  processors_ = 0;
}

int SamplingBatch::add(const ops::SampleRow& row, uint32_t processors) {
  TERN_CHECK(count_ < limits_.max_rows && row.logit_row < limits_.max_logit_rows);
  rows_[count_] = row;
  rows_[count_].mask_row = (processors & kMask) != 0 ? count_ : -1;
  processors_ |= processors;
  logit_rows_ = std::max(logit_rows_, row.logit_row + 1);
  return count_++;
}

void SamplingBatch::ask(ops::LogprobRow row, bool captured) {
  row.top = static_cast<int32_t>(std::min<int64_t>(row.top, limits_.vocab));
  row.out = score_count_;
  requests_.push_back({score_count_, 1 + row.top});
  score_count_ += 1 + row.top;
  TERN_CHECK(score_count_ <= scores_.size());
  logit_rows_ = std::max(logit_rows_, row.sampled_row + 1);
  if (captured) {
    captured_rows_[captured_++] = row;
  } else {
    plain_rows_[plain_++] = row;
  }
}

void SamplingBatch::add_logprobs(const ops::SampleRow& row, const SamplingParams& p, uint32_t processors) {
  ops::LogprobRow r;
  r.logit_row = r.sampled_row = row.logit_row;
  r.top = p.logprobs;
  r.logits = is_logits(limits_.mode);
  const float scale = p.greedy() ? 1.0f : 1.0f / p.temperature;
  if (!is_raw(limits_.mode)) {
    r.scale = scale;
    return ask(r, false);
  }
  if (!is_logits(limits_.mode)) {
    if (p.temp_scaled_logprobs) r.scale = scale;
    if (p.top_p_normalized_logprobs) r.top_p = p.top_p;
  }
  // The mask comes before the capture (spec 5.1 steps 1 and 2): alone it changes nothing.
  const bool changed = (processors & ~static_cast<uint32_t>(kMask)) != 0;
  if (changed) {
    capture_rows_[captures_] = row.logit_row;
    r.logit_row = captures_++;
  }
  ask(r, changed);
}

void SamplingBatch::add_prompt_logprobs(int32_t logit_row, int32_t target, int32_t count) {
  ops::LogprobRow r;
  r.logit_row = r.sampled_row = logit_row;
  r.target = target;
  r.top = count;
  r.logits = is_logits(limits_.mode);
  ask(r, false);
}

std::span<uint32_t> SamplingBatch::mask(int row) {
  const int64_t words = mask_words(limits_.vocab);
  TERN_CHECK(limits_.masks && row >= 0 && row < count_);
  return {masks_.host() + row * words, static_cast<size_t>(words)};
}

std::span<const ops::TokenScore> SamplingBatch::scores(int request) const {
  const Scores& s = requests_[static_cast<size_t>(request)];
  return {scores_.host() + s.begin, static_cast<size_t>(s.count)};
}

Expected<Sampler> Sampler::create(const SamplerLimits& limits, device::Device& device) {
  Sampler s;
  s.limits_ = limits;
  TERN_ASSIGN_OR_RETURN(s.slots_, SlotState::create(limits.slots, limits.vocab, limits.capacity, device));
  const auto row = static_cast<size_t>(limits.vocab) * sizeof(float);
  TERN_ASSIGN_OR_RETURN(s.captured_, device.allocate(static_cast<size_t>(limits.max_rows) * row));
  TERN_ASSIGN_OR_RETURN(s.workspace_, device.allocate(ops::sample_workspace(device.stream(), limits.vocab)));
  return s;
}

Status Sampler::run_processors(const SamplingBatch& b, const ops::LogitsParams& rows, bool masks,
                               device::Stream stream) {
  ProcessorInput input;
  input.rows = rows;
  if (limits_.masks) {
    input.masks = tensor2(b.masks_.device(), DType::kI32, limits_.max_rows, mask_words(limits_.vocab));
  }
  for (const Processor& p : processors()) {
    if ((p.bit == kMask) != masks || (b.processors_ & p.bit) == 0) continue;
    TERN_RETURN_IF_ERROR(p.run(input, stream));
  }
  return {};
}

Status Sampler::run(SamplingBatch& b, TensorView logits, device::Device& device, device::Stream stream) {
  TERN_RETURN_IF_ERROR(slots_.apply(b.updates, device, stream));
  if (logits.dim[1] > limits_.vocab) logits = logits.columns(0, limits_.vocab);
  b.rows_.upload(b.count_, device, stream);
  ops::LogitsParams rows;
  rows.logits = logits, rows.rows = b.rows_.device(), rows.count = b.count_;
  rows.slots = slots_.arrays();
  if ((b.processors_ & kMask) != 0) {
    b.masks_.upload(b.count_ * mask_words(limits_.vocab), device, stream);
    TERN_RETURN_IF_ERROR(run_processors(b, rows, true, stream));
  }
  const TensorView captured = tensor2(captured_.data(), DType::kF32, limits_.max_rows, limits_.vocab);
  if (b.captures_ > 0) {
    b.capture_rows_.upload(b.captures_, device, stream);
    TERN_RETURN_IF_ERROR(ops::capture_logits({logits, b.capture_rows_.device(), b.captures_, captured}, stream));
  }
  TERN_RETURN_IF_ERROR(run_processors(b, rows, false, stream));
  ops::SampleParams params;
  params.rows = rows;
  params.ids = b.device_ids();
  params.status = tensor1(b.status_.device(), DType::kI32, b.status_.size());
  if (limits_.probs) params.probs = tensor1(b.probs_.device(), DType::kF32, b.probs_.size());
  params.workspace = workspace_.data();
  TERN_RETURN_IF_ERROR(ops::sample(params, stream));
  ops::LogprobParams scores;
  scores.ids = params.ids, scores.out = b.scores_.device(), scores.workspace = workspace_.data();
  const auto score = [&](const Staged<ops::LogprobRow>& list, int count, TensorView of) -> Status {
    if (count == 0) return {};
    list.upload(count, device, stream);
    scores.logits = of, scores.rows = list.device(), scores.count = count;
    return ops::token_logprobs(scores, stream);
  };
  TERN_RETURN_IF_ERROR(score(b.plain_rows_, b.plain_, logits));
  TERN_RETURN_IF_ERROR(score(b.captured_rows_, b.captured_, captured));
  b.ids_.download(b.logit_rows_, device, stream);
  b.status_.download(b.logit_rows_, device, stream);
  if (limits_.probs) b.probs_.download(b.logit_rows_, device, stream);
  b.scores_.download(b.score_count_, device, stream);
  return {};
}

}  // namespace tern::sample
